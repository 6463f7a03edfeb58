"""An ingress controller behind ``kubeloop proxy`` sends its requests to a Router, which splits them between versions of an application."""
