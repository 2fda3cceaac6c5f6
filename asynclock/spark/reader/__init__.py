"""Reads of the table: the view, changes, SQL and the timeline."""
