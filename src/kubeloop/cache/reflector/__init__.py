"""What to ask a server next, and asking it."""
