"""Kubernetes' own conformance suite against the embedded server: ``make conformance-upstream``."""
