"""Traces one event from the socket to the reconciler, and back to the reader as an own write."""
