"""Field sets after a schema changed: who owned parts of what is atomic now owns the whole.

Source: KEP-2155; structured-merge-diff's typed/reconcile_schema.
"""

from __future__ import annotations

from kubeloop.merge.fields.field_set import FieldSet
from kubeloop.merge.fields.field_types import FieldType
from kubeloop.merge.fields.tree import LEAF, SELF, Node


def reconcile(fields: FieldSet, type_: FieldType) -> FieldSet:
    """``fields`` itself where nothing has to change. Atomic turned granular is not carried over: the parts have no owner then."""
    if type_.map is None or type_.map.atomic:
        return fields
    root = _node(fields.root, type_)
    return fields if root is fields.root else FieldSet(root)


def _node(node: Node, type_: FieldType) -> Node:
    """``node`` has children (a leaf is owned as it is)."""
    if type_.map is not None:
        map_ = type_.map
        if map_.free:
            return node
        if map_.atomic:
            return LEAF
        if not any(node.values()):
            return node
        fields, values = map_.fields, map_.values
        changed: Node = {}
        for element, below in node.items():
            if below:
                field = fields.get(element[2:], values) if element[0] == "f" else values
                if field is not None and (found := _node(below, field)) is not below:
                    changed[element] = found
        return {**node, **changed} if changed else node
    if type_.scalar is None and type_.list is not None:
        if type_.list.atomic:
            return LEAF
        if not any(node.values()):
            return node
        items = type_.list.items
        changed = {
            element: found for element, below in node.items() if below and element != SELF and (found := _node(below, items)) is not below
        }
        return {**node, **changed} if changed else node
    return node
