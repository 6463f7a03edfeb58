"""Alternate forms of objects: Tables with rows and columns for people, and objects reduced to their metadata."""

from kubeloop.endpoints.tables.layout import human_duration
from kubeloop.endpoints.tables.table import INCLUDE_OBJECT, has_tables, partial_list, partial_object, table

__all__ = ["INCLUDE_OBJECT", "has_tables", "human_duration", "partial_list", "partial_object", "table"]
