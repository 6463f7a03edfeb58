"""``kubeloop doctor``: checks the requirements of a program in a cluster, before the program fails."""
