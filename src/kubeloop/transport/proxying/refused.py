"""What a proxy that does not let us through becomes."""


class ProxyRefusedError(Exception):
    """A proxy could not be reached or did not open a tunnel. The text names the proxy, where it is set, and the way out."""
