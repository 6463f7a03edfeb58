"""``kubeloop doctor``: what a program needs of a cluster, looked at before it fails for want of it."""
