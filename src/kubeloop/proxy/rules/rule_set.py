"""All rules of a proxy: read from files, and selected for requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kubeloop.proxy.rules.context import RewriteContext
from kubeloop.proxy.rules.documents import YamlDocument, read_documents, read_files
from kubeloop.proxy.rules.errors import Mistakes
from kubeloop.proxy.rules.rule import RewriteRule, parse_rule
from kubeloop.proxy.rules.selection import RuleSelection, select_rules
from kubeloop.timing import Clock, SystemClock

#: Number of requests whose selections are cached; they differ by user, verb, resource and object.
MAX_CACHED: Final = 2048
#: Maximum characters of the texts of a request whose selection is cached; a header can have a million.
_LONGEST: Final = 1024


class RuleSet:
    """The rules of a proxy in the order of their files. It never changes; a reload makes another one.

    Guarantees:
        A set is complete: one mistake in a file refuses all of it, with all mistakes in one error.
        A List without items is a set without rules; a file without documents, which may be half written, is a mistake.
        Rules apply in the order of the files' names and documents, and each rule sees the object as the server has it.

    Cost:
        A cached selection takes about 1 us.

    Example:
        >>> rules = RuleSet.parse(text)
        >>> rules.rules[0].name
        'hide-back'
        >>> rules.select(context).rules
        ('hide-back',)

    Attributes:
        rules: The rules in order.
        digest: A hash of the documents' content. Comments do not count.
        may_hide: Some rule may hide objects.
        uses_users: Some rule depends on the user, on the groups of the user, or on a Python callable, which gets the user.
    """

    def __init__(self, rules: Iterable[RewriteRule], digest: str) -> None:
        self.rules = tuple(rules)
        self.digest = digest
        self.uses_users = any(rule.uses_users for rule in self.rules)
        self.may_hide = any(action.hides for rule in self.rules for action in rule.actions)
        conditions = [rule.condition for rule in self.rules if rule.condition is not None]
        # Parts of a request that no rule reads do not multiply the cached selections.
        self._uses_request = any(condition.uses_request for condition in conditions) or not all(rule.is_synchronous for rule in self.rules)
        self._uses_agents = self._uses_request or any(entry.user_agents is not None for rule in self.rules for entry in rule.match)
        self._uses_names = self._uses_request or any(entry.names is not None for rule in self.rules for entry in rule.match)
        self._uses_namespaces = self._uses_request or any(entry.namespaces is not None for rule in self.rules for entry in rule.match)
        self._selections: dict[tuple[object, ...], RuleSelection | None] = {}

    @classmethod
    def load(cls, path: Path, *, clock: Clock | None = None) -> RuleSet:
        """Read the rules of a file, or of all files ``*.yaml``, ``*.yml`` and ``*.json`` of a folder.

        Args:
            path: The file or folder.
            clock: Measures the time limits of Python callables. Default: the system's.

        Raises:
            RuleError: There is a mistake; the message has a line for each.
        """
        mistakes = Mistakes()
        return cls._from_documents(read_files(path, mistakes), mistakes, clock or SystemClock())

    @classmethod
    def parse(cls, text: str, file: str = "rules.yaml", *, clock: Clock | None = None) -> RuleSet:
        """Read the rules of a text.

        Args:
            text: A YAML stream.
            file: The name of the file in messages.
            clock: Measures the time limits of Python callables. Default: the system's.

        Raises:
            RuleError: There is a mistake; the message has a line for each.
        """
        mistakes = Mistakes()
        return cls._from_documents(read_documents(text, file, mistakes), mistakes, clock or SystemClock())

    @classmethod
    def _from_documents(cls, documents: list[YamlDocument], mistakes: Mistakes, clock: Clock) -> RuleSet:
        items = [item for document in documents for item in document.items()]
        rules: list[RewriteRule] = []
        places: dict[str, str] = {}
        numbers: dict[str, int] = {}
        for item in items:
            number = numbers[item.file] = numbers.get(item.file, 0) + 1
            metadata = item.value.get("metadata") if isinstance(item.value, dict) else None
            name = metadata.get("name") if isinstance(metadata, dict) else None
            line = item.line(("metadata", "name"))
            if isinstance(name, str) and name in places:
                mistakes.add(item.file, line, f"rule {name}: metadata.name: another rule has this name, in {places[name]}")
            elif isinstance(name, str):
                places[name] = f"{item.file}:{line}"
            rule = parse_rule(item, number, mistakes, clock)
            if rule is not None:
                rules.append(rule)
        mistakes.check()
        content = json.dumps([item.value for item in items], separators=(",", ":"))
        return cls(rules, hashlib.sha256(content.encode()).hexdigest())

    def select(self, context: RewriteContext) -> RuleSelection | None:
        """Return the rules for the answer to a request, or None if no rule can touch it."""
        user = context.user
        key = (
            context.group,
            context.version,
            context.resource,
            context.subresource,
            context.verb,
            context.namespace if self._uses_namespaces else "",
            context.name if self._uses_names else "",
            context.user_agent if self._uses_agents else "",
            *((user.name, user.groups, user.uid) if self.uses_users else ()),
            *((name, tuple(values)) for name, values in (user.extra.items() if self.uses_users else ())),
        )
        try:
            return self._selections[key]
        except KeyError:
            pass
        found = select_rules(self.rules, context)
        if len(context.user_agent) + len(context.name) + len(context.namespace) > _LONGEST:
            return found  # what clients send must not fill the memory
        if len(self._selections) >= MAX_CACHED:
            # The oldest goes; which one hardly matters, since a selection is made in microseconds.
            del self._selections[next(iter(self._selections))]
        self._selections[key] = found
        return found

    def could_match(self, group: str, version: str, resource: str) -> bool:
        """Return whether some rule could touch objects of a resource, for any user, verb and namespace.

        Args:
            group: API group; empty for the core group.
            version: API version.
            resource: Resource in plural, with its subresource after a slash if it has one.
        """
        name, _, subresource = resource.partition("/")
        return any(entry.could_match(group, version, name, subresource) for rule in self.rules for entry in rule.match)
