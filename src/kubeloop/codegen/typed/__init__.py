"""Typed models of custom kinds and of other servers' kinds, with all facts of their schemas."""

from kubeloop.codegen.typed.docs import Docs
from kubeloop.codegen.typed.formatting import same
from kubeloop.codegen.typed.package import render_module, render_package
from kubeloop.codegen.typed.source import ModelSource, source_of_crd, source_of_definitions

__all__ = ["Docs", "ModelSource", "render_module", "render_package", "same", "source_of_crd", "source_of_definitions"]
