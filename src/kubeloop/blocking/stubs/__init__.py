"""Generates the stub of ``kubeloop.blocking`` from the asynchronous classes, so that the two cannot drift apart."""

from kubeloop.blocking.stubs.module import generated

__all__ = ["generated"]
