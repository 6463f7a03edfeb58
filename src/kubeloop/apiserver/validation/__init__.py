"""Validation rules that many kinds share: formats, object metadata, label selectors.

Messages and their order are those of Kubernetes, because clients compare causes.
"""
