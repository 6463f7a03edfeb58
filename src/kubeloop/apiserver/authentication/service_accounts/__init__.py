"""Tokens of service accounts: issued for a request, verified, and their issuer told to others."""
