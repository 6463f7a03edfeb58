"""Waiting for objects: what is wanted of one (``wants``, ``readiness``, ``rollouts``), and the one loop that waits for it (``waiting``)."""
