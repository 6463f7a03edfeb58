"""The verbs of a client, one file for each group; ``kubeloop.client.Client`` is all of them."""
