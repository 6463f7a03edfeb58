"""Connections through a proxy: an HTTP tunnel, or SOCKS 5. ``kubeloop.config.proxies`` chooses the proxy."""
