"""Caching mode of the proxy: gets, lists and watches of many clients cost the API server one list and watch per resource."""

from kubeloop.proxy.cached.reader import CachedReads

__all__ = ["CachedReads"]
