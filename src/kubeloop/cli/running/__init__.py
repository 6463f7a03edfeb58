"""``kubeloop run``: runs a program while it is developed, restarts it on each change of its sources, and shows it live."""
