"""Shows the difference of two JSON trees as a unified diff, for messages about immutable fields.

Source: apimachinery pkg/util/diff, which gets internal objects (see ``schema.internal_values``).
"""

from __future__ import annotations

import difflib
from typing import Any

from kubeloop.meta.field_error import go_json
from kubeloop.schema.internal_values import internal_value


def difference(struct: str, old: Any, new: Any, sent: Any = None) -> str:
    """Return the difference of two values.

    Args:
        struct: Go's name of the type of both values, or of the items of both lists.
        old: The stored value.
        new: The new value.
        sent: The new value in the request body; None if it is not known.

    Returns:
        Lines of a unified diff without its header.
    """
    before, after = _lines(struct, old, None), _lines(struct, new, sent)
    # The header of two lines names files, which do not exist here.
    return "".join(list(difflib.unified_diff(before, after))[2:])


def _lines(struct: str, tree: Any, sent: Any) -> list[str]:
    return [f"{line}\n" for line in go_json(internal_value(struct, tree, sent), indent=1).split("\n")]
