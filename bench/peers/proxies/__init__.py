"""Scripts for other proxies, which do what kubeloop's rules do."""
