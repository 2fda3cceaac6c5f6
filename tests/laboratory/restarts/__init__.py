"""Drivers that are killed, restored and given new schemas, against an oracle without Spark."""
