"""What a server serves: asked in both forms of discovery, kept in memory and on disk, looked up by the names that people use."""

from kubeloop.client.discovery.discovery_client import discover
from kubeloop.client.discovery.resources import ApiResource, Discovered, Failure

__all__ = ["ApiResource", "Discovered", "Failure", "discover"]
