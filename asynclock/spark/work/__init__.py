"""How work is done on a table: under a lease, past its gate, cancellable, again if it failed."""
