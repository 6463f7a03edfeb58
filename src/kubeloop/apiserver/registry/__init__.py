"""Served resources: their registry, strategies, options and objects over storage."""
