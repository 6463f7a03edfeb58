"""The HTTP layer of a Kubernetes API, independent of a server: request info, users, Status, content negotiation, encoding, Tables.

This package does not import ``kubeloop.apiserver``, so that a proxy in front of an API server can use it. Upstream: k8s.io/apiserver
pkg/endpoints.
"""
