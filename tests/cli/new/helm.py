"""The few words of Helm's templates that a generated chart uses, so that it can be rendered where no helm is.

Source: Helm documentation, "Chart Template Guide"; Go's text/template. Anything else is refused, so that charts stay this simple.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kubeloop.codec.yaml import read_yaml, write_yaml

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)


def rendered(chart: Path, release: str, namespace: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """What ``helm template RELEASE CHART`` gives: the documents of all templates."""
    (about,) = read_yaml((chart / "Chart.yaml").read_text())
    (defaults,) = read_yaml((chart / "values.yaml").read_text())
    facts = {
        "Release": {"Name": release, "Namespace": namespace},
        "Chart": {"AppVersion": about["appVersion"], "Name": about["name"]},
        "Values": {**defaults, **(values or {})},
    }
    texts = [_rendered(path.read_text(), chart, facts) for path in sorted((chart / "templates").glob("*.yaml"))]
    return [document for text in texts for document in read_yaml(text)]


def _rendered(text: str, chart: Path, facts: dict[str, Any]) -> str:
    out, at, shown = "", 0, [True]
    for action in _ACTION.finditer(text):
        before = text[at : action.start()]
        if shown[-1]:
            out += before
        if action[1]:
            out = out.rstrip() if shown[-1] else out
        words = action[2]
        if words.startswith("if "):
            shown.append(shown[-1] and bool(_value(words[3:], chart, facts)))
        elif words == "end":
            shown.pop()
        elif shown[-1]:
            out += str(_value(words, chart, facts))
        at = action.end()
        if action[3]:
            raise ValueError(f"{action[0]}: this renderer trims on the left only")
    return out + text[at:]


def _value(pipeline: str, chart: Path, facts: dict[str, Any]) -> Any:
    first, *filters = [part.strip() for part in pipeline.split("|")]
    value = _operand(first, chart, facts)
    for words in filters:
        name, _, argument = words.partition(" ")
        if name == "default":
            value = value or _operand(argument, chart, facts)
        elif name == "nindent":
            value = "\n" + "\n".join(" " * int(argument) + line for line in str(value).rstrip("\n").splitlines())
        else:
            raise ValueError(f"{words}: not among the words that charts here may use")
    return value


def _operand(words: str, chart: Path, facts: dict[str, Any]) -> Any:
    if words.startswith("toYaml "):
        return write_yaml(_operand(words.removeprefix("toYaml "), chart, facts))
    if found := re.fullmatch(r'\.Files\.Get "([^"]+)"', words):
        return (chart / found[1]).read_text()
    if not re.fullmatch(r"(\.\w+)+", words):
        raise ValueError(f"{words}: not among the words that charts here may use")
    value: Any = facts
    for name in words[1:].split("."):
        value = value[name]
    return value
