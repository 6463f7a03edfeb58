"""``kubeloop run``: runs a program during development, restarts it on each change of its sources, and shows it live."""
