"""Reading the cache: listers, this process's own writes, what changed since."""
