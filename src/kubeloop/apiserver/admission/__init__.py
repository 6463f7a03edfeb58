"""Admission: what may change or refuse a write after it was authorized and decoded."""

from kubeloop.apiserver.admission.chain import NAMESPACES, Admission, Attributes, NamespaceLifecycle, Plugin, Reinvocation, Selective

__all__ = ["NAMESPACES", "Admission", "Attributes", "NamespaceLifecycle", "Plugin", "Reinvocation", "Selective"]
