"""What readers see, and the check that it is right."""
