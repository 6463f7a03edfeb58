"""The embedded Kubernetes API server. It behaves like kube-apiserver, and returns a clear error for what it does not implement."""
