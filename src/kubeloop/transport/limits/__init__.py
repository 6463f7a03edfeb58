"""What holds requests back: a bound on those at the same time, and a back-off from a server that fails."""
