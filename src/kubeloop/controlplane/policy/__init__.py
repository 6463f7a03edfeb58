"""Controllers that report the status of policies: quotas and disruption budgets."""
