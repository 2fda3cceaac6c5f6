"""The source files of a stream, read into rows and bad rows."""
