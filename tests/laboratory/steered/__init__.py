"""Behaviours that TLC draws from the specification, run step by step on the shipped code."""
