"""Horizontal pod autoscalers."""
