"""Histories of the shipped code, checked as behaviours of the specification ``docs/spec/Lease.tla``."""
