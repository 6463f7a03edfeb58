"""Schedulers as programs of their own, for ``python -m bench scheduler``."""
