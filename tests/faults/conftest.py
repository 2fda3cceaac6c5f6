"""The servers behind the fault proxy."""

from tests.servers.fixtures import (
    any_server,
    azurite,
    azurite_tls,
    cloud,
    fake_gcs,
    fake_gcs_tls,
    minio,
    minio_tls,
    moto,
)

__all__ = [
    "any_server",
    "azurite",
    "azurite_tls",
    "cloud",
    "fake_gcs",
    "fake_gcs_tls",
    "minio",
    "minio_tls",
    "moto",
]
