"""Heads by name and by index, in snapshots."""
