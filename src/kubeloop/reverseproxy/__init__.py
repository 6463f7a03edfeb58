"""Reverse proxying of HTTP/1.1: requests, upgrades and tunnels to a backend, of the API server and of any other proxy.

Nothing here imports ``kubeloop.apiserver``. ``http`` proxies plain requests, ``upgrade`` upgrades and tunnels; ``stream_translator``
serves WebSockets for backends that speak only SPDY.
"""
