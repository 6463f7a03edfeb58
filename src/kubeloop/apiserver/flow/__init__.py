"""API Priority and Fairness: the order in which an overloaded server executes requests. Source: KEP-1040, Kubernetes documentation.

Differences from upstream and their reasons: docs/server.md, "Overload".
"""
