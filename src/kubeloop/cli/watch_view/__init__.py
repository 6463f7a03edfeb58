"""The output of ``kubeloop watch``: differences between two states of an object, and their printers."""
