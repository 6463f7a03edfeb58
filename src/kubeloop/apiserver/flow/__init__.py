"""API Priority and Fairness: who is served first when more is asked than can be done. Source: KEP-1040, Kubernetes documentation.

How it differs from upstream, and why: docs/server.md, "Overload".
"""
