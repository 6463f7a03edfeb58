"""Listers and what they read: the cache, the process's own writes, and the recorded deletions."""
