"""Diagnostics of informers: statistics, tables, Prometheus metrics and warnings."""
