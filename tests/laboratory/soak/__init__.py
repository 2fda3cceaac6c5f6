"""Several tables under streams, services, jobs and readers, while processes and stores fail."""
