"""The machine below the handles: what a client is, and one lock of a client. Nothing here is public."""
