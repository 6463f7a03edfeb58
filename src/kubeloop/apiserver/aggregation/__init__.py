"""Aggregation: APIs of other servers behind this one, registered as APIServices: proxied, probed, and shown in discovery and OpenAPI."""
