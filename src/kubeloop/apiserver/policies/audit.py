"""What policies add to the audit log. Source: k8s.io/apiserver pkg/admission/plugin/policy/validating/dispatcher.go."""

from __future__ import annotations

import json
from typing import Final

#: Bytes of an annotation's value.
_LONGEST: Final = 10 * 1024


class Annotations:
    """The annotations of one policy, whose values of several bindings and parameters stand in one."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._values: dict[str, list[str]] = {}

    def add(self, key: str, value: str) -> None:
        """An empty value is none; one that is there already is not repeated."""
        value = value.encode()[:_LONGEST].decode("utf-8", "ignore")
        values = self._values.setdefault(key, [])
        if value and value not in values:
            values.append(value)

    def publish(self, into: dict[str, str]) -> None:
        """What is there already stays."""
        for key, values in self._values.items():
            if values:
                into.setdefault(f"{self._policy}/{key}", ", ".join(values))


def failure_annotation(message: str, policy: str, binding: str, index: int, actions: tuple[str, ...]) -> str:
    """The value that says what was found wrong with a request that went on."""
    failure = {
        "message": message,
        "policy": policy,
        "binding": binding,
        "expressionIndex": index,
        "validationActions": list(actions),
    }
    text = json.dumps([failure], separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":  # as Go's encoder writes them
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
