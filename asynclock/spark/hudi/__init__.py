"""Hudi's options, timeline and session."""
