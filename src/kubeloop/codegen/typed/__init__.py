"""Typed models of custom kinds and of other servers' kinds, with all facts of their schemas."""

from kubeloop.codegen.typed.module import render_module, render_package
from kubeloop.codegen.typed.python_text import Docs, same
from kubeloop.codegen.typed.source import ModelSource, source_of_crd, source_of_definitions

__all__ = ["Docs", "ModelSource", "render_module", "render_package", "same", "source_of_crd", "source_of_definitions"]
