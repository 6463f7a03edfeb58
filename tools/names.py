"""``python -m tools.names``: checks the names and words of the project against its vocabulary (CONTRIBUTING.md).

It finds public classes of kubeloop that are defined in two modules, names that a term of Kubernetes or Python has replaced, parameters
whose names do not say what they hold, and phrases that plain English does without. Generated code (``kubeloop.api``) is left out.

Exit status: 1 if a replaced name is back, or a figure is higher than ``tools/names.json`` allows.
``--update`` lowers the figures there to those of today; it never raises one.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "kubeloop"
VOCABULARY = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Vocabulary:
    """The stored rules.

    Attributes:
        classes: replaced class name -> the name to use.
        modules: replaced module name -> the name to use.
        arguments: names that no parameter may have.
        duplicates: public class name -> number of modules that may define it. One that is missing may be defined once.
        phrases: phrase -> number of times that comments, docstrings and pages may hold it.
    """

    classes: dict[str, str]
    modules: dict[str, str]
    arguments: list[str]
    duplicates: dict[str, int]
    phrases: dict[str, int]


def sources(root: Path = SOURCE) -> list[Path]:
    """Return the hand-written modules of kubeloop."""
    return [path for path in sorted(root.rglob("*.py")) if "api" not in path.relative_to(root).parts[:1]]


def public_classes(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Public class name -> the modules that define it at their top level."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return dict(found)


def vague_arguments(paths: Iterable[Path], names: Collection[str]) -> list[str]:
    """Return the parameters that have one of the names, each as ``module:line: name``."""
    return [
        f"{path}:{node.lineno}: {node.arg}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.arg) and node.arg in names
    ]


def count_phrases(paths: Iterable[Path], phrases: Iterable[str]) -> Counter[str]:
    """Phrase -> how often the files hold it, as whole words and in any case."""
    patterns = {phrase: re.compile(rf"\b{re.escape(phrase)}\b", re.IGNORECASE) for phrase in phrases}
    found: Counter[str] = Counter()
    for path in paths:
        text = path.read_text()
        for phrase, pattern in patterns.items():
            found[phrase] += len(pattern.findall(text))
    return found


def problems(vocabulary: Vocabulary, classes: Mapping[str, list[Path]], paths: Iterable[Path], phrases: Mapping[str, int]) -> list[str]:
    """Return what breaks the vocabulary, each as a sentence that says what to do.

    Args:
        vocabulary: the stored rules.
        classes: public class name -> the modules that define it.
        paths: the modules whose names are checked.
        phrases: phrase -> how often it is used today.
    """
    result = []
    for name, places in sorted(classes.items()):
        if name in vocabulary.classes:
            result.append(f"{places[0]}: class {name}: use {vocabulary.classes[name]}")
    result += [f"{path}: a module {path.stem}: use {vocabulary.modules[path.stem]}" for path in paths if path.stem in vocabulary.modules]
    for name, places in sorted(classes.items()):
        if len(places) > (allowed := vocabulary.duplicates.get(name, 1)):
            where = ", ".join(str(place) for place in places)
            result.append(f"class {name} is defined in {len(places)} modules, allowed {allowed}: {where}; give each its own name")
    for phrase, count in phrases.items():
        if count > (allowed := vocabulary.phrases[phrase]):
            result.append(f"{phrase!r} is used {count} times, allowed {allowed}; write a sentence with a subject and a verb")
    return result


def lower(vocabulary: Vocabulary, classes: Mapping[str, list[Path]], phrases: Mapping[str, int]) -> Vocabulary:
    """Return the vocabulary with the lower of each figure, without duplicates that are gone."""
    duplicates = {name: min(allowed, len(classes.get(name, ()))) for name, allowed in vocabulary.duplicates.items()}
    return Vocabulary(
        vocabulary.classes,
        vocabulary.modules,
        vocabulary.arguments,
        {name: allowed for name, allowed in duplicates.items() if allowed > 1},
        {phrase: min(allowed, phrases[phrase]) for phrase, allowed in vocabulary.phrases.items()},
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.names", description="Check names and words against the vocabulary.")
    parser.add_argument("--update", action="store_true", help=f"lower the figures of {VOCABULARY.name} to those of today")
    options = parser.parse_args(arguments)
    vocabulary = Vocabulary(**json.loads(VOCABULARY.read_text()))
    paths = sources()
    classes = public_classes(paths)
    phrases = count_phrases([*paths, *sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"], vocabulary.phrases)
    wrong = problems(vocabulary, classes, paths, phrases)
    wrong += [f"{text}: name the argument after what it holds" for text in vague_arguments(paths, vocabulary.arguments)]
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    print(f"{len(classes)} public classes, {sum(len(places) > 1 for places in classes.values())} of them in two modules or more")
    print(f"{sum(phrases.values())} phrases to replace")
    if options.update:
        lowest = lower(vocabulary, classes, phrases)
        VOCABULARY.write_text(json.dumps(vars(lowest), indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
