"""The way of a batch into the table: fitted, merged, committed under the lease of its stream."""
