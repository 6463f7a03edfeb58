"""Conformance: scripted requests against the embedded server, compared with what a real Kubernetes 1.36 API server answered."""
