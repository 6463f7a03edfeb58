"""Serving: what every HTTP endpoint of kubeloop shares - TLS listener, requests, answers, negotiation, graceful end."""
