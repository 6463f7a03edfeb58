"""``kubeloop run``: a program while it is developed - started anew on each change of its sources, and shown live."""
