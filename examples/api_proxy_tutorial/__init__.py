"""A Kubernetes API proxy that changes data, in nine stages; docs/tutorials/api-proxy.md is their text."""
