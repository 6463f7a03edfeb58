"""Aggregation: APIs of extension API servers, registered as APIServices, are proxied, probed, and shown in discovery and OpenAPI."""
