"""The common parts of kubeloop's HTTP servers: TLS listener, requests, responses, content negotiation, graceful shutdown."""
