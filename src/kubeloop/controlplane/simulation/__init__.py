"""Simulated nodes: kubelets that run no containers, and annotations that say how their pods behave."""
