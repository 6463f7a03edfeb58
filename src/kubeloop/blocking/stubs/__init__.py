"""Writes the stub of ``kubeloop.blocking`` from the asynchronous classes themselves, so that the two cannot drift apart."""

from kubeloop.blocking.stubs.module import generated

__all__ = ["generated"]
