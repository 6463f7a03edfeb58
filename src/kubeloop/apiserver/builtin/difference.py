"""A readable difference of two trees, for messages that refuse a change: a unified diff of indented JSON.

Source: apimachinery pkg/util/diff, which is given internal objects (see ``schema.internal_values``).
"""

from __future__ import annotations

import difflib
from typing import Any

from kubeloop.meta.field_error import go_json
from kubeloop.schema.internal_values import internal_value


def difference(struct: str, old: Any, new: Any, sent: Any = None) -> str:
    """``struct``: Go's name of the type of both, or of the items of both lists. ``sent``: the body of the new one as it came."""
    before, after = _lines(struct, old, None), _lines(struct, new, sent)
    # Two header lines name files, of which there are none.
    return "".join(list(difflib.unified_diff(before, after))[2:])


def _lines(struct: str, tree: Any, sent: Any) -> list[str]:
    return [f"{line}\n" for line in go_json(internal_value(struct, tree, sent), indent=1).split("\n")]
