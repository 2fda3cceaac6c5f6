"""Generated source files and what must come of each of them."""
