"""Helpers for single objects: conditions, finalizers and status."""
