"""The errors of rules: mistakes in rule files, which are collected and reported together, and rules that fail on an object."""

from __future__ import annotations

from kubeloop.meta.errors import ConfigError, KubeloopError


class RuleError(ConfigError):
    """Rule files cannot be used. The message has a line for each mistake: file, line, rule, field, and what was expected."""


class RuleFailed(KubeloopError):
    """A rule with ``onError: Fail`` failed on an object, which therefore must not be shown.

    ``reason`` is for logs: it may contain values of the object.
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"rule {rule}: {reason}")
        self.rule = rule
        self.reason = reason


class ActionFailed(KubeloopError):
    """A condition or an action cannot be applied to an object. The rule turns this into ``RuleFailed``, or discards its changes."""


class Mistakes:
    """Collects the mistakes of all files.

    >>> mistakes = Mistakes()
    >>> mistakes.add("rules.yaml", 3, "no rule")
    >>> mistakes.lines
    ['rules.yaml:3: no rule']
    """

    def __init__(self) -> None:
        self._found: list[tuple[str, int, str]] = []

    def add(self, file: str, line: int, text: str) -> None:
        """Add a mistake; its text becomes one line, which control characters cannot break."""
        shown = " ".join(text.split())
        self._found.append((file, line, "".join(each if each.isprintable() else repr(each)[1:-1] for each in shown)))

    @property
    def lines(self) -> list[str]:
        """The mistakes as text, each once, by file and line."""
        files = {file: number for number, file in enumerate(dict.fromkeys(file for file, _, _ in self._found))}
        ordered = sorted(self._found, key=lambda mistake: (files[mistake[0]], mistake[1]))
        return list(dict.fromkeys(f"{file}:{line}: {text}" for file, line, text in ordered))

    def check(self) -> None:
        """Raise the mistakes, if there are any.

        Raises:
            RuleError: There is at least one mistake; each has a line of the message.
        """
        if self._found:
            raise RuleError("\n".join(self.lines))
