"""Reads of a reconcile: from the cache within its scope, and never a state older than this process's own writes."""
