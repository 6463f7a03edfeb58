"""Prometheus metrics under Kubernetes' names. Source: Kubernetes documentation, "Kubernetes Metrics Reference"."""
