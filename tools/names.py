"""``python -m tools.names``: checks the names and words of the project against its vocabulary (CONTRIBUTING.md).

It checks the modules and pages of kubeloop and the code beside it: ``tests``, ``bench``, ``examples``, ``tools``. It finds public classes
of kubeloop that are defined in two modules; classes, modules and folders whose name a term of Kubernetes or Python has replaced; parameters
whose names do not say what they hold; and phrases that plain English does without. In test functions an underscore counts as a space, so
that their names are checked as sentences. Generated code (``kubeloop.api``) is left out.

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
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "kubeloop"
VOCABULARY = Path(__file__).with_suffix(".json")
#: Folders with code beside kubeloop. Their phrases have other ceilings.
OTHER_ROOTS = ("tests", "bench", "examples", "tools")
#: Pages that belong to these folders.
OTHER_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md")
_TEST = re.compile(r"(?<=def )test_\w+")


@dataclass(frozen=True)
class Vocabulary:
    """The stored rules.

    Attributes:
        classes: replaced class name -> the name to use. A private class must not have such a name either.
        modules: replaced name of a module or folder -> the name to use.
        allowed_paths: modules and folders that may have a replaced name, relative to the repository.
        arguments: names that no parameter may have.
        duplicates: public class name -> number of modules that may define it. A missing name may be defined once.
        phrases: phrase -> number of times that comments, docstrings and pages of kubeloop may hold it.
        other_phrases: the same for tests, bench, examples, tools, CHANGELOG.md and CONTRIBUTING.md.
    """

    classes: dict[str, str]
    modules: dict[str, str]
    allowed_paths: list[str]
    arguments: list[str]
    duplicates: dict[str, int]
    phrases: dict[str, int]
    other_phrases: dict[str, int]


def sources(root: Path = SOURCE) -> list[Path]:
    """Return the hand-written modules of kubeloop."""
    return [path for path in sorted(root.rglob("*.py")) if "api" not in path.relative_to(root).parts[:1]]


def other_files(root: Path = ROOT) -> list[Path]:
    """Return the modules and pages beside kubeloop."""
    files = [path for name in OTHER_ROOTS for suffix in ("*.py", "*.md") for path in sorted((root / name).rglob(suffix))]
    # bench/.build has the environments of other programs.
    found = [path for path in files if not any(part.startswith(".") for part in path.relative_to(root).parts)]
    return [*found, *(root / name for name in OTHER_PAGES if (root / name).exists())]


def module_name(path: Path) -> str:
    """Return the name of a module or folder without the prefix that pytest needs."""
    return path.stem.removeprefix("test_")


def replaced_classes(paths: Iterable[Path], classes: Mapping[str, str]) -> list[str]:
    """Return the classes with a replaced name, public or private and at any depth, each as a sentence that says what to do."""
    return [
        f"{path}:{node.lineno}: class {node.name}: use {classes[node.name.lstrip('_')]}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.lstrip("_") in classes
    ]


def replaced_modules(paths: Iterable[Path], modules: Mapping[str, str], allowed: Collection[Path] = (), root: Path = ROOT) -> list[str]:
    """Return the modules and folders with a replaced name, each as a sentence that says what to do.

    Args:
        paths: the modules. Their folders are checked as well.
        modules: replaced name -> the name to use.
        allowed: modules and folders that may have a replaced name.
        root: the repository. Its folder and those above it may have any name.

    Returns:
        A sentence for each module and folder.
    """
    paths = list(paths)
    folders = sorted({parent for path in paths for parent in path.parents if root in parent.parents})
    return [
        f"{path}: a {kind} {module_name(path)}: use {modules[module_name(path)]}"
        for kind, checked in (("module", paths), ("folder", folders))
        for path in checked
        if module_name(path) in modules and path not in allowed
    ]


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
    """Phrase -> how often the files hold it, as whole words and in any case, also in names of test functions."""
    patterns = {phrase: re.compile(rf"\b{re.escape(phrase)}\b", re.IGNORECASE) for phrase in phrases}
    found: Counter[str] = Counter()
    for path in paths:
        text = _TEST.sub(lambda name: name[0].replace("_", " "), path.read_text())
        for phrase, pattern in patterns.items():
            found[phrase] += len(pattern.findall(text))
    return found


def problems(
    vocabulary: Vocabulary, classes: Mapping[str, list[Path]], phrases: Mapping[str, int], other_phrases: Mapping[str, int]
) -> list[str]:
    """Return the figures that are higher than the vocabulary allows, each as a sentence that says what to do.

    Args:
        vocabulary: the stored rules.
        classes: public class name -> the modules that define it.
        phrases: phrase -> how often kubeloop and its pages use it today.
        other_phrases: phrase -> how often the code beside kubeloop uses it today.
    """
    result = []
    for name, places in sorted(classes.items()):
        if len(places) > (allowed := vocabulary.duplicates.get(name, 1)):
            where = ", ".join(str(place) for place in places)
            result.append(f"class {name} is defined in {len(places)} modules, allowed {allowed}: {where}; give each its own name")
    for place, counts, ceilings in (
        ("kubeloop", phrases, vocabulary.phrases),
        ("tests and tools", other_phrases, vocabulary.other_phrases),
    ):
        for phrase, count in counts.items():
            if count > (allowed := ceilings[phrase]):
                result.append(f"{phrase!r} is used {count} times in {place}, allowed {allowed}; write a sentence with a subject and a verb")
    return result


def lower(
    vocabulary: Vocabulary, classes: Mapping[str, list[Path]], phrases: Mapping[str, int], other_phrases: Mapping[str, int]
) -> Vocabulary:
    """Return the vocabulary with the lower of each figure, without duplicates and allowed paths that are gone.

    Args:
        vocabulary: the stored rules.
        classes: public class name -> the modules that define it.
        phrases: phrase -> how often kubeloop and its pages use it today.
        other_phrases: phrase -> how often the code beside kubeloop uses it today.

    Returns:
        The rules to store.
    """
    duplicates = {name: min(allowed, len(classes.get(name, ()))) for name, allowed in vocabulary.duplicates.items()}
    return replace(
        vocabulary,
        allowed_paths=[path for path in vocabulary.allowed_paths if (ROOT / path).exists()],
        duplicates={name: allowed for name, allowed in duplicates.items() if allowed > 1},
        phrases={phrase: min(allowed, phrases[phrase]) for phrase, allowed in vocabulary.phrases.items()},
        other_phrases={phrase: min(allowed, other_phrases[phrase]) for phrase, allowed in vocabulary.other_phrases.items()},
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.names", description="Check names and words against the vocabulary.")
    parser.add_argument("--update", action="store_true", help=f"lower the figures of {VOCABULARY.name} to those of today")
    options = parser.parse_args(arguments)
    vocabulary = Vocabulary(**json.loads(VOCABULARY.read_text()))
    paths, others = sources(), other_files()
    modules = [*paths, *(path for path in others if path.suffix == ".py")]
    classes = public_classes(paths)
    phrases = count_phrases([*paths, *sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"], vocabulary.phrases)
    other_phrases = count_phrases(others, vocabulary.other_phrases)
    wrong = replaced_classes(modules, vocabulary.classes)
    wrong += replaced_modules(modules, vocabulary.modules, [ROOT / path for path in vocabulary.allowed_paths])
    wrong += problems(vocabulary, classes, phrases, other_phrases)
    wrong += [f"{text}: name the argument after what it holds" for text in vague_arguments(modules, vocabulary.arguments)]
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    print(f"{len(classes)} public classes, {sum(len(places) > 1 for places in classes.values())} of them in two modules or more")
    print(f"{sum(phrases.values())} phrases to replace in kubeloop, {sum(other_phrases.values())} in tests and tools")
    if options.update:
        lowest = lower(vocabulary, classes, phrases, other_phrases)
        VOCABULARY.write_text(json.dumps(vars(lowest), indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
