"""CustomResourceDefinitions from Python classes: discovery of classes, rendering, validation as by a server, YAML."""

from kubeloop.codegen.crd.classes import classes_at
from kubeloop.codegen.crd.manifest import Definition, check_definition, definitions_of, to_yaml, version_warnings

__all__ = ["Definition", "check_definition", "classes_at", "definitions_of", "to_yaml", "version_warnings"]
