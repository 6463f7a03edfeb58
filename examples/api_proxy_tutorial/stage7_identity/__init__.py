"""A proxy whose clients have users."""
