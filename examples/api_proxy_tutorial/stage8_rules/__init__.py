"""The same as rules for kubeloop proxy."""
