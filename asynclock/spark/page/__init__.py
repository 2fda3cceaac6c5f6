"""The report of a run: a page that draws it, and a summary for the terminal."""
