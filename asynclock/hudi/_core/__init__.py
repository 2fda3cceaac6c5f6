"""How ``asynclock.hudi`` locks a table, and reads and writes the audit trail of its lock."""
