"""Role-based access control: what roles allow to whom bindings name. Source: Kubernetes documentation, "Using RBAC Authorization"."""
