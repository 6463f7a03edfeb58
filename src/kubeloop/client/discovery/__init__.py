"""Discovery: the resources that a server serves, cached in memory and on disk, and found by the names that kubectl accepts."""

from kubeloop.client.discovery.discovery_client import discover
from kubeloop.client.discovery.resources import ApiResource, Discovered, Failure

__all__ = ["ApiResource", "Discovered", "Failure", "discover"]
