"""``kubeloop new``: projects to begin with, which pass their own tests at once."""
