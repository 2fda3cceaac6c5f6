"""Hudi's own table lock from Python: the lock file of ``StorageBasedLockProvider``, byte for byte."""

from asynclock.hudi._core.audit import AuditCleanup as AuditCleanup
from asynclock.hudi._core.audit import AuditReport as AuditReport
from asynclock.hudi._core.audit import AuditStatus as AuditStatus
from asynclock.hudi._core.audit import audit_cleanup as audit_cleanup
from asynclock.hudi._core.audit import audit_disable as audit_disable
from asynclock.hudi._core.audit import audit_enable as audit_enable
from asynclock.hudi._core.audit import audit_history as audit_history
from asynclock.hudi._core.audit import audit_status as audit_status
from asynclock.hudi._core.audit import audit_validate as audit_validate
from asynclock.hudi._core.audit_records import AuditHold as AuditHold
from asynclock.hudi._core.lock_options import write_options as write_options
from asynclock.hudi._core.table_locks import TableLock as TableLock
from asynclock.hudi._core.table_locks import TableLockStatus as TableLockStatus
from asynclock.hudi._core.table_locks import table_lock as table_lock
