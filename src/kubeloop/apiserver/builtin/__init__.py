"""Strategies of the built-in kinds. A strategy sets the defaults of its kind, prepares objects for writes, and validates them."""

from kubeloop.apiserver.builtin.catalogue import strategies

__all__ = ["strategies"]
