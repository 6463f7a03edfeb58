"""A proxy whose watches agree with its lists."""
