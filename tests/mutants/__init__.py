"""Planted mistakes in the shipped protocol that the simulator must find."""
