"""Work on a table: under a lease, past its gate, cancellable, and repeated if it fails."""
