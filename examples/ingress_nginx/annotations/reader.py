"""Reads the annotations of one Ingress by name, and collects the problems of values that parsers refuse."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from examples.ingress_nginx.annotations.parsed import Objects, Problem
from examples.ingress_nginx.annotations.values import InvalidValue, object_name
from kubeloop.api.core.v1 import Secret

T = TypeVar("T")

# Line and paragraph separators count: a log or an event may show them as a new line.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class AnnotationReader:
    """Parses annotations of one Ingress.

    The names that the parsers ask for are the supported annotations: ``names`` collects them, whether an Ingress has them or not.
    So each parser asks for all of its annotations, also where a value of another annotation makes them meaningless.

    Args:
        annotations: All annotations of the Ingress.
        namespace: The Ingress's namespace, the only one whose objects it may refer to.
        objects: Where the objects are looked up.
        prefix: In front of the slash of the annotations that are read.

    Example:
        >>> reader = AnnotationReader({"example.com/proxy-body-size": "8q"}, "shop", objects, "example.com")
        >>> reader.read("proxy-body-size", size(), 1 << 20)
        1048576
        >>> reader.problems[0].annotation
        'example.com/proxy-body-size'
    """

    def __init__(self, annotations: Mapping[str, str], namespace: str, objects: Objects, prefix: str) -> None:
        self.namespace = namespace
        self.names: set[str] = set()
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.secrets: list[tuple[str, str]] = []
        self._objects = objects
        self._prefix = f"{prefix}/"
        self._values = {name.removeprefix(self._prefix): value for name, value in annotations.items() if name.startswith(self._prefix)}
        self._refused: set[str] = set()

    def read(self, name: str, parse: Callable[[str], T], default: T, *, denies: bool = False) -> T:
        """Return the parsed value of an annotation.

        Args:
            name: Name without the prefix.
            parse: Parser that raises InvalidValue.
            default: Result where the Ingress lacks the annotation or its value is refused.
            denies: Whether a refused value denies requests, because the annotation asks for a protection.
        """
        self.names.add(name)
        if (value := self._values.get(name)) is None:
            return default
        try:
            if _CONTROL.search(value):
                raise InvalidValue("has a line break or another control character; write it in one line, without one at its end")
            return parse(value)
        except InvalidValue as error:
            self.refuse(name, f"the value {error}", denies=denies)
            return default

    def read_alias(self, name: str, alias: str, parse: Callable[[str], T], default: T, *, denies: bool = False) -> T:
        """Return the parsed value of an annotation with two names. Two different values are a problem.

        Args:
            name: Name without the prefix.
            alias: Second name.
            parse: Parser that raises InvalidValue.
            default: Result where the Ingress has neither.
            denies: Whether a refused value denies requests.
        """
        first, second = self.read(name, parse, default, denies=denies), self.read(alias, parse, default, denies=denies)
        if self.has(name) and self.has(alias) and first != second:
            self.refuse(alias, f"{alias} and {name} are the same setting and differ; remove {alias}", denies=denies)
        return first if self.has(name) else second

    def secret(self, name: str, *, denies: bool = True) -> tuple[str, Secret | None]:
        """Return the name and the Secret that an annotation refers to, as ``name`` or ``namespace/name``; empty and None without one."""
        reference = self.read(name, self._reference, "", denies=denies)
        if not reference:
            return "", None
        self.secrets.append((self.namespace, reference))
        if (secret := self._objects.secret(self.namespace, reference)) is None:
            text = f"the Secret {self.namespace}/{reference} does not exist, or may not be read; create it"
            self.refuse(name, text, denies=denies, missing=True)
        return reference, secret

    def value(self, name: str) -> str:
        """Return the text of an annotation; empty: the Ingress lacks it."""
        return self._values.get(name, "")

    def has(self, name: str) -> bool:
        """Whether the Ingress has the annotation, with any value."""
        return name in self._values

    def refused(self, *names: str) -> bool:
        """Whether one of the annotations has a problem."""
        return not self._refused.isdisjoint(names)

    def refuse(self, name: str, message: str, *, denies: bool = False, missing: bool = False) -> None:
        """Record a problem of an annotation; the arguments are those of ``Problem``."""
        self._refused.add(name)
        self.problems.append(Problem(self._prefix + name, message, denies, missing))

    def expect(self, required: str, *names: str, denies: bool = False) -> None:
        """Record a problem of each of the annotations that the Ingress has although ``required``, on which it depends, is not in effect."""
        for name in filter(self.has, names):
            if not self.refused(name):
                self.refuse(name, f"it has no effect without {required}; add that or remove this", denies=denies)

    def unread(self) -> dict[str, str]:
        """Return the annotations of the prefix that no parser has asked for."""
        return {name: value for name, value in sorted(self._values.items()) if name not in self.names}

    def _reference(self, value: str) -> str:
        namespace, separator, name = value.rpartition("/")
        if separator and namespace != self.namespace:
            raise InvalidValue("names an object of another namespace; copy the object to the Ingress's namespace")
        return object_name(name)
