"""Field names of schemas as CEL identifiers: ``x-prop`` is written ``x__dash__prop``, ``namespace`` is ``__namespace__``.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules.
"""

from __future__ import annotations

import re
from typing import Final

_RESERVED: Final = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
    "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
_ALLOWED: Final = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")
_WRITTEN: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SPECIAL: Final = re.compile(r"__|[./-]")


def escape(name: str) -> str | None:
    """The identifier of a field; None for a name that has none (rules cannot reach such a field)."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _ALLOWED.fullmatch(name):
        return None
    return _SPECIAL.sub(lambda found: _WRITTEN[found[0]], name)
