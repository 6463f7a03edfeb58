"""What a reconcile reads: the cache within its scope, and never a state older than what this process has written."""
