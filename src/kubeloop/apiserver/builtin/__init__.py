"""Strategies of the built-in kinds: how each is defaulted, prepared and validated."""

from kubeloop.apiserver.builtin.catalogue import strategies

__all__ = ["strategies"]
