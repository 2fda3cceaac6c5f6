"""The algorithm of the lock: pure decisions, and the steps that perform them.

``protocol.md`` has the rules and ``docs/concepts/protocol.md`` the proof. Decisions, without
I/O: ``timing``, ``judgement``, ``attempts``. Steps: ``store`` (one read or write), ``acquisition``,
``tenure`` (renew and release), ``reaper``.
"""
