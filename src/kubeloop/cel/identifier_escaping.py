"""Escapes field names of schemas as CEL identifiers: ``x-prop`` becomes ``x__dash__prop``, ``namespace`` becomes ``__namespace__``.

Sources: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules;
k8s.io/apiserver pkg/cel/escaping.go.
"""

from __future__ import annotations

import re
from typing import Final

#: Words that CEL reserves.
RESERVED: Final = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
    "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
_ALLOWED: Final = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")
_WRITTEN: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SPECIAL: Final = re.compile(r"__|[./-]")
_ESCAPED: Final = re.compile(r"__([^_]+)__")
_MEANT: Final = {written[2:-2]: meant for meant, written in _WRITTEN.items()}


def escape(name: str) -> str | None:
    """Return the CEL identifier of a field name, or None if the name cannot be escaped, so that rules cannot access the field."""
    if name in RESERVED:
        return f"__{name}__"
    if not _ALLOWED.fullmatch(name):
        return None
    return _SPECIAL.sub(lambda match: _WRITTEN[match[0]], name)


def unescape(identifier: str) -> str | None:
    """Return the field name that an identifier stands for, or None for an identifier with an unknown escape, such as ``a__b__c``.

    A name without escapes is returned as it is: ``unescape("namespace")`` is ``namespace``, as is ``unescape("__namespace__")``.
    """
    if _ESCAPED.fullmatch(identifier) and identifier[2:-2] in RESERVED:
        return identifier[2:-2]
    parts = _ESCAPED.findall(identifier)
    if any(part not in _MEANT for part in parts):
        return None
    return _ESCAPED.sub(lambda match: _MEANT[match[1]], identifier)
