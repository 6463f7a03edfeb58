"""The audit log: events of requests, selected by a policy file. Source: Kubernetes documentation, "Auditing"."""
