"""How to get through a proxy to the server: an HTTP tunnel, or SOCKS 5. Which proxy it is, ``kubeloop.config.proxies`` says."""
