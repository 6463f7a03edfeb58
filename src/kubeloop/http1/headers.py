"""Header fields of an answer: names without regard to case, in the order of arrival, several values of one name kept apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Headers(Mapping[str, str]):
    """Looking a name up joins its values by commas (RFC 9110, section 5.2)."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}

    def add(self, name: str, value: str) -> None:
        self._values.setdefault(name.lower(), []).append(value)

    def values_of(self, name: str) -> list[str]:
        """Each value as it came; empty if there is none."""
        return list(self._values.get(name.lower(), ()))

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._values[name.lower()])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        # Values may be secret (Set-Cookie).
        return f"Headers({', '.join(self._values)})"
