"""A real node: kubelet, containerd, kube-proxy and CoreDNS, in private namespaces, joined to kubeloop's server. Linux only, as root."""
