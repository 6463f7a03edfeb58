"""Filters around every request: its state, audit events, flow control, metrics and logs."""
