"""What the server passes on: logs and streams of containers to their node's kubelet, requests to pods, services and nodes.

It knows kubelets by their HTTP interface only, whoever serves it. ``connecting`` is the way in, and the table of what is served.
"""
