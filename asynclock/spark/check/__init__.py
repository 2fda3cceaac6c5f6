"""The check of a table against its sources, by code that shares nothing with the writer."""
