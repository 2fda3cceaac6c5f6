"""The servers that the contract is run against."""

from tests.servers.fixtures import any_server, azurite, cloud, fake_gcs, minio, minio_tls, moto

__all__ = ["any_server", "azurite", "cloud", "fake_gcs", "minio", "minio_tls", "moto"]
