"""Patches and paths over JSON trees, for clients and servers: JSON patch, merge patch, strategic merge patch, JSONPath."""

from kubeloop.merge.errors import PatchError
from kubeloop.merge.json_patch import json_patch
from kubeloop.merge.jsonpath import JSONPath, JSONPathError
from kubeloop.merge.merge_patch import create_merge_patch, merge_patch
from kubeloop.merge.strategic import strategic_merge

__all__ = ["JSONPath", "JSONPathError", "PatchError", "create_merge_patch", "json_patch", "merge_patch", "strategic_merge"]
