"""What a controller does to single objects: conditions, finalizers and status."""
