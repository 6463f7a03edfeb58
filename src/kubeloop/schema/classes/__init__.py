"""Builds structural schemas from Python classes, in the form of a CustomResourceDefinition; and checks objects against them."""

from kubeloop.schema.classes.nodes import check, require_valid, schema_of

__all__ = ["check", "require_valid", "schema_of"]
