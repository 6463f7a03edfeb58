"""Devices and who may use them: the kinds of resource.k8s.io."""
