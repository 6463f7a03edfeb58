"""The HTTP side of a Kubernetes API without a server: request info, users, Status, negotiation, encoding, tables.

Nothing here imports ``kubeloop.apiserver``, so that a proxy in front of an API server can use it. Upstream: k8s.io/apiserver pkg/endpoints.
"""
