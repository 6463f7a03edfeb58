"""The store of heads by name and by index, with snapshots."""
