"""An ingress controller on a real NGINX, for Ingresses and the Gateway API."""
