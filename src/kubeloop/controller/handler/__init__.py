"""Watches, the mapping of their events to keys, and predicates: they decide which events lead to a reconcile."""
