"""Admission: what may change or refuse a write after it was authorized and decoded."""

from kubeloop.apiserver.admission.chain import Admission, Attributes, Plugin, Reinvocation, Selective
from kubeloop.apiserver.admission.namespaces import NAMESPACES, NamespaceLifecycle

__all__ = ["NAMESPACES", "Admission", "Attributes", "NamespaceLifecycle", "Plugin", "Reinvocation", "Selective"]
