"""The algorithm of the lock; ``docs/concepts/architecture.md`` has a picture of it.

The comments name the rules of the protocol by their numbers (``docs/concepts/protocol.md`` has the
proof). Decisions, without I/O: ``timing``, ``decisions``. Steps that perform them: ``objects`` (one read
or write), ``claim`` (what may stand, and freeing it), ``acquire``, ``held`` (renew, release, hand over).
Who has its turn: ``waiting`` and ``renewal``.
"""
