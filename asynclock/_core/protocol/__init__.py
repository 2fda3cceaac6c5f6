"""The algorithm of the lock; ``docs/concepts/architecture.md`` has a picture of it.

The comments name the rules of the protocol by their numbers (``docs/concepts/protocol.md`` has the
proof). The modules by subject:

- decisions, without I/O: ``timing``, ``decisions``;
- one read or write: ``objects``, with ``outcomes``, ``issuer``, ``verifier`` and ``unanswered``;
- the writes that may stand, and freeing them: ``claim``;
- one acquisition: ``acquire``, with ``stake`` and ``acquire_call``;
- one held lock: ``held``, with ``belief``, ``renewer``, ``refusals``, ``release``,
  ``ending``, ``tenure`` and ``body``;
- when other clients have their turn: ``waiting``;
- one look a second at all held locks of a client: ``schedule``.
"""
