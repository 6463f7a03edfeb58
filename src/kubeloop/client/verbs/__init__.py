"""The methods of a client, one file per group; ``kubeloop.client.Client`` combines them."""
