"""What a run did, as JSON lines in a folder that several processes share: written, read and summed."""
