"""The servers that the contract is run against."""

from tests.servers.fixtures import azurite, fake_gcs, minio, moto

__all__ = ["azurite", "fake_gcs", "minio", "moto"]
