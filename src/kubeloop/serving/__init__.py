"""Serving: the common parts of kubeloop's HTTP endpoints - TLS listener, requests, responses, negotiation, graceful shutdown."""
