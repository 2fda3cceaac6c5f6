"""Every ``hoodie.*`` option that the table lock reads or sets; ``asynclock.spark.hoodie`` has the pipeline's.

Each key is spelled in one of the two. The name of a constant is its key in capitals: ``hoodie.base.path`` is
``hoodie.BASE_PATH``.
"""

from __future__ import annotations

from typing import Final

# The table: kept in its ``hoodie.properties``.
BASE_PATH: Final = "hoodie.base.path"
TABLE_VERSION: Final = "hoodie.table.version"

# The lock of a commit.
WRITE_LOCK_PROVIDER: Final = "hoodie.write.lock.provider"
WRITE_LOCK_WAIT_TIME_MS: Final = "hoodie.write.lock.wait_time_ms"
WRITE_LOCK_STORAGE_VALIDITY_TIMEOUT_SECS: Final = "hoodie.write.lock.storage.validity.timeout.secs"
WRITE_LOCK_STORAGE_RENEW_INTERVAL_SECS: Final = "hoodie.write.lock.storage.renew.interval.secs"
WRITE_LOCK_STORAGE_HEARTBEAT_POLL_SECS: Final = "hoodie.write.lock.storage.heartbeat.poll.secs"
"""The name of ``renew.interval.secs`` up to Hudi 1.0.2. Later releases still read it."""

# Credentials of the storage-based lock.
AWS_ACCESS_KEY: Final = "hoodie.aws.access.key"
AWS_SECRET_KEY: Final = "hoodie.aws.secret.key"
AWS_SESSION_TOKEN: Final = "hoodie.aws.session.token"
WRITE_LOCK_AZURE_CONNECTION_STRING: Final = "hoodie.write.lock.azure.connection.string"
WRITE_LOCK_AZURE_SAS_TOKEN: Final = "hoodie.write.lock.azure.sas.token"

# A write.
WRITE_CONCURRENCY_MODE: Final = "hoodie.write.concurrency.mode"

# Table services.
CLEANER_POLICY_FAILED_WRITES: Final = "hoodie.cleaner.policy.failed.writes"
"""The older name, which every release reads."""

# Prefixes that several options share.
AWS_PREFIX: Final = "hoodie.aws."
WRITE_LOCK_STORAGE_PREFIX: Final = "hoodie.write.lock.storage."
WRITE_LOCK_AZURE_PREFIX: Final = "hoodie.write.lock.azure."
AZURE_IDENTITY_PREFIXES: Final = (
    "hoodie.write.lock.azure.managed.identity.",
    "hoodie.write.lock.azure.client.",
)
"""Credentials that Hudi accepts and asynclock does not."""
