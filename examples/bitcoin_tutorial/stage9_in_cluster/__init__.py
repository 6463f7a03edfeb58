"""Stage 9: the controller as a pod of the cluster, with the rights that it needs and no others."""
