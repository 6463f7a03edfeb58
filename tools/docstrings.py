"""``python -m tools.docstrings``: counts public functions and classes whose docstrings lack what a caller needs (CONTRIBUTING.md).

A public function with four or more parameters needs ``Args:``; ``Returns:`` if it returns something that its docstring does not
state; ``Raises:`` if it raises. A function that says that it is the implementation of a public method leaves them to that method. A class
of the public API needs an example, a doctest; ``tests/docs/test_docstrings.py`` runs them. Generated code (``kubeloop.api``) is left out.

Exit status: 1 if a figure is higher than ``tools/docstrings.json`` allows.
``--update`` lowers the figures there to those of today; it never raises one. ``--list PACKAGE`` prints each place.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.names import SOURCE, sources
from tools.public_api import PACKAGES, classes_for_examples

FIGURES = Path(__file__).with_suffix(".json")
#: Number of parameters, ``self`` and ``cls`` left out, from which on a docstring lists them.
PARAMETERS = 4

_DELEGATES = re.compile(r"; the (implementation|declaration) of ``")
_RETURNS = re.compile(r"^\s*(Returns|Yields):", re.MULTILINE)
_STATES_RESULT = re.compile(
    r"^(Return|Yield|Whether|Iterate|Provide|Build|Make|Load|Read|Parse|Decode|Encode|Format|Open|Choose|Convert|Wait)\b|[Rr]eturns? "
)


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Lack(NamedTuple):
    """Something that a docstring lacks. ``kind`` is ``Args``, ``Returns``, ``Raises`` or ``example``."""

    kind: str
    package: str
    place: str


def parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters, without ``self`` and ``cls``."""
    arguments = function.args
    named = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in named if name not in ("self", "cls") and not name.startswith("_")]


def raises(function: Function) -> bool:
    """Whether the function itself raises a new exception, apart from ``NotImplementedError`` and ``AssertionError``."""
    inner = [node for node in ast.walk(function) if node is not function and isinstance(node, Function | ast.Lambda)]
    hidden = {id(node) for one in inner for node in ast.walk(one)}
    for node in ast.walk(function):
        if isinstance(node, ast.Raise) and id(node) not in hidden and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func)
            if name not in ("NotImplementedError", "AssertionError"):
                return True
    return False


def lacks_of_function(function: Function, text: str) -> list[str]:
    """Return the sections that a docstring lacks; none for a function with few parameters."""
    if len(parameters(function)) < PARAMETERS:
        return []
    result = []
    if not re.search(r"^\s*Args:", text, re.MULTILINE):
        result.append("Args")
    returns = ast.unparse(function.returns) if function.returns else "None"
    if returns != "None" and not _RETURNS.search(text) and not _STATES_RESULT.search(text):
        result.append("Returns")
    if raises(function) and not re.search(r"\bRaises\b", text):
        result.append("Raises")
    return result


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function, str]]:
    """Yield the qualified name, the node and the docstring of each public function; a constructor may use that of its class."""
    for node in tree.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield node.name, node, ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for member in node.body:
                if isinstance(member, Function) and (member.name == "__init__" or not member.name.startswith("_")):
                    text = ast.get_docstring(member) or ""
                    if member.name == "__init__":
                        text += "\n" + (ast.get_docstring(node) or "")
                    yield f"{node.name}.{member.name}", member, text


def lacks(paths: Iterable[Path], root: Path = SOURCE) -> list[Lack]:
    """Return everything that the docstrings of public functions lack."""
    result = []
    for path in paths:
        relative = path.relative_to(root)
        package = relative.parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text())
        for name, function, text in _functions(tree):
            if _DELEGATES.search(text):
                continue
            if any(re.search(r"overload$|\.command\b|\.group\b|^click\.", ast.unparse(decorator)) for decorator in function.decorator_list):
                continue  # click prints the docstring of a command as its help, and options have their own texts
            result += [Lack(kind, package, f"{relative}:{function.lineno} {name}") for kind in lacks_of_function(function, text)]
    return result


def lacks_of_classes(classes: Iterable[type]) -> list[Lack]:
    """Return the classes without an example."""
    lacking = [cls for cls in classes if ">>> " not in (cls.__doc__ or "")]
    return [Lack("example", cls.__module__.split(".")[1], f"{cls.__module__} {cls.__qualname__}") for cls in lacking]


def figures_of(lacks: Iterable[Lack]) -> dict[str, int]:
    """Return the number of lacks by kind, sorted."""
    return dict(sorted(Counter(lack.kind for lack in lacks).items()))


def problems(allowed: Mapping[str, int], today: Mapping[str, int]) -> list[str]:
    """Return a sentence for each figure that is higher than allowed."""
    return [
        f"{count} docstrings lack {kind}, allowed {limit}; python -m tools.docstrings --list PACKAGE prints those of a package"
        for kind, count in today.items()
        if count > (limit := allowed.get(kind, 0))
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.docstrings", description="Count docstrings without parameters or examples.")
    parser.add_argument("--update", action="store_true", help=f"lower the figures of {FIGURES.name} to those of today")
    parser.add_argument("--list", metavar="PACKAGE", help="print each place of a package")
    options = parser.parse_args(arguments)
    found = lacks(sources()) + lacks_of_classes(cls for package in PACKAGES for cls in classes_for_examples(package).values())
    if options.list:
        print(*[f"{lack.place}: {lack.kind}" for lack in found if lack.package == options.list], sep="\n")
        return 0
    today = figures_of(found)
    allowed = json.loads(FIGURES.read_text())
    wrong = problems(allowed, today)
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    print("docstrings: " + (", ".join(f"{count} lack {kind}" for kind, count in today.items()) or "complete"))
    if options.update:
        lowest = {kind: min(limit, today.get(kind, 0)) for kind, limit in allowed.items()}
        FIGURES.write_text(json.dumps(lowest, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
