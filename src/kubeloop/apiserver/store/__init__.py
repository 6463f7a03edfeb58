"""The generic store: reads, writes and deletes objects of any resource, through admission and validation."""
