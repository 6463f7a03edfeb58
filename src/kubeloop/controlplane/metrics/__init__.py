"""The metrics server: the usage of nodes and pods at metrics.k8s.io."""
