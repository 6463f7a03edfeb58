"""What leads to a reconcile: watches, the mapping of their events to keys, and predicates."""
