"""Servers and networks that fail on command, over real sockets: each fault is one line of a test."""

from tests.faults.proxy import FaultProxy
from tests.faults.server import DROP, SILENCE, FaultServer, Received, Reply, authority, frames, loopback_certificate, status

__all__ = ["DROP", "SILENCE", "FaultProxy", "FaultServer", "Received", "Reply", "authority", "frames", "loopback_certificate", "status"]
