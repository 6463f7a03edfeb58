"""Calls admission webhooks and the conversion webhooks of custom resources."""
