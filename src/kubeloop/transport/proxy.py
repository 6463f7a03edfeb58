"""The proxy that a server is reached through. The rule which one lives in ``kubeloop.config.proxies``."""

from kubeloop.config.proxies import Proxy, proxy_for

__all__ = ["Proxy", "proxy_for"]
