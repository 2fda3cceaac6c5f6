"""A batch on its way into the table: fitted, merged, committed under the lease of its stream."""
