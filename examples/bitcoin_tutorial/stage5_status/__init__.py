"""Stage 5: the status of a network: its daemons, and which of them are ready."""
