"""Building and running controllers."""
