"""Simulated nodes: a kubelet that runs no containers, and the annotations that say how its pods behave."""
