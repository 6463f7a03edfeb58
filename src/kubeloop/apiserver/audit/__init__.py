"""The audit log: who asked for what, and how it ended, by a policy file. Source: Kubernetes documentation, "Auditing"."""
