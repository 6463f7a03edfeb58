"""Reverse proxying of HTTP/1.1 requests, upgrades and tunnels to a backend, for the API server and for other proxies.

This package does not import ``kubeloop.apiserver``. ``http`` proxies plain requests. ``upgrade`` proxies upgrades and tunnels.
``stream_translator`` serves WebSocket clients on behalf of backends that speak only SPDY.
"""
