"""Sources of models: files with OpenAPI documents or CustomResourceDefinitions, and live clusters."""

from kubeloop.codegen.sources.files import Tell, read_files
from kubeloop.codegen.sources.live import read_builtins, read_cluster

__all__ = ["Tell", "read_builtins", "read_cluster", "read_files"]
