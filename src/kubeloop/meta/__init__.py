"""Core types of the Kubernetes API that are written by hand: names, metadata, selectors, quantities, errors."""
