"""Subresources that connect clients to kubelets, pods, services and nodes: log, exec, attach, portforward, proxy.

The server uses nothing but the kubelets' HTTP interface. ``connecters`` has the table of these subresources.
"""
