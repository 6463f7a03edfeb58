"""Stage 8: tests of the controller without a cluster."""
