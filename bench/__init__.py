"""Benchmarks: kubeloop's informer and its peers on the same pods and events."""
