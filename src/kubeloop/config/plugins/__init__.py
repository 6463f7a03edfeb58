"""Credential plugins: programs that print a token or a client certificate.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins and client-go
plugin/pkg/client/auth/exec.
"""
