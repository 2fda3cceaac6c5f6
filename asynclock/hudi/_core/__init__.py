"""The machinery of ``asynclock.hudi``: the lock of a table, and the audit trail of that lock."""
