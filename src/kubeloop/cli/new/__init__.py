"""``kubeloop new``: project templates whose own tests pass at once."""
