"""Waits for objects: the conditions (``conditions``, ``readiness``), and the loop that watches until they are met (``waiting``)."""
