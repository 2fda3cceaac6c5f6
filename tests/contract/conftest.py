"""The servers and stores that the contract is run against."""

from tests.servers.fixtures import (
    any_store,
    azure_store,
    azurite,
    cloud,
    fake_gcs,
    gcs_store,
    minio,
    minio_tls,
    moto,
    moto_store,
    s3_store,
)

__all__ = [
    "any_store",
    "azure_store",
    "azurite",
    "cloud",
    "fake_gcs",
    "gcs_store",
    "minio",
    "minio_tls",
    "moto",
    "moto_store",
    "s3_store",
]
