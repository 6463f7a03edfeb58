"""Schedulers as separate programs, for ``python -m bench scheduler``."""
