"""Rules that many kinds share: formats, object metadata, label selectors.

Messages are Kubernetes' own, and so is their order, for clients compare causes.
"""
