"""A kubelet whose containers are processes of this machine: nodes that run pods without a container runtime (docs/process-pods.md)."""
