"""The error of a proxy that refuses to connect."""


class ProxyRefusedError(Exception):
    """A proxy is unreachable or did not open a tunnel. The text names the proxy, its setting, and the fix."""
