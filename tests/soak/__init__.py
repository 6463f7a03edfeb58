"""Informers under random faults for a long time: ``python -m tests.soak``."""
