"""Compaction, cleaning and archiving by elected leaders."""
