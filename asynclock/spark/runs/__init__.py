"""Runs: the command that starts one, its log, and the page that draws it."""
