"""Requests for certificates, and what issues them."""
