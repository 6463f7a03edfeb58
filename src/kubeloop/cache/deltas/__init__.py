"""What happened, on its way into the store."""
