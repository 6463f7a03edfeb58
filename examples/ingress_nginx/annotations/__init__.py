"""Typed parsers for the annotations of ingress-nginx: a value becomes a number, a list or a pattern, or a problem, never text for NGINX."""
