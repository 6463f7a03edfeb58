"""Values in messages as they were sent: upstream tells ``{}`` and ``[]`` from a field that was left out, a conformed tree does not."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from kubeloop.meta.field_error import FieldError

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def with_explicit_empties(errors: Iterable[FieldError], sent: Any) -> list[FieldError]:
    """``sent``: the body before it was conformed."""
    return [_shown(error, sent) for error in errors]


def _shown(error: FieldError, sent: Any) -> FieldError:
    # A whole spec is a struct, never null: where a message about it shows null, that is one of its parts (an Ingress's rules).
    if error.value is not None or error.field == "spec":
        return error
    found = _at(sent, error.field)
    return dataclasses.replace(error, value=found) if found in ({}, []) else error


def _at(tree: Any, path: str) -> Any:
    for name, index in _STEP.findall(path):
        if name:
            tree = tree.get(name) if isinstance(tree, dict) else None
        else:
            tree = tree[int(index)] if isinstance(tree, list) and int(index) < len(tree) else None
    return tree
