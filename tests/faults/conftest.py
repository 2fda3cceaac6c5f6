"""The servers behind the fault proxy."""

from tests.servers.fixtures import azurite, fake_gcs, minio, moto

__all__ = ["azurite", "fake_gcs", "minio", "moto"]
