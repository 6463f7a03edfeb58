"""From Python classes to structural schemas: what a class declares, in the words of a CustomResourceDefinition; and checks against it."""

from kubeloop.schema.classes.checking import check, require_valid
from kubeloop.schema.classes.nodes import schema_of

__all__ = ["check", "require_valid", "schema_of"]
