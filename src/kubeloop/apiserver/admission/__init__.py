"""Admission control: plug-ins that change or reject a write after it is authorized and decoded."""

from kubeloop.apiserver.admission.chain import NAMESPACES, Admission, Attributes, NamespaceLifecycle, Plugin, Reinvocation, ResourcePlugin

__all__ = ["NAMESPACES", "Admission", "Attributes", "NamespaceLifecycle", "Plugin", "Reinvocation", "ResourcePlugin"]
