"""What kubelets may do: what the pods of their own node need, and no more. Source: Kubernetes documentation, "Using Node Authorization"."""
