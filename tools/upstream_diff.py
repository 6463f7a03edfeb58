"""Compares the upstream files that docstrings cite as their source between two Kubernetes versions.

    python -m tools.upstream_diff 1.35.0 1.36.3                     a line for each cited file that changed, with the modules that cite it
    python -m tools.upstream_diff 1.35.0 1.36.3 --only cache --diff only what kubeloop.cache cites, with the differences
    python -m tools.upstream_diff 1.36.3 --unresolved               statements that name no file of that version

Go downloads the modules (``go mod download``). docs/upgrading-kubernetes.md describes how the result is used.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_SOURCES = Path("src/kubeloop")

#: Modules that are released with each Kubernetes version, as v0.MINOR.PATCH.
_STAGING = (
    "api",
    "apiextensions-apiserver",
    "apimachinery",
    "apiserver",
    "cli-runtime",
    "client-go",
    "component-base",
    "component-helpers",
    "controller-manager",
    "kube-aggregator",
    "kubectl",
    "kubelet",
    "pod-security-admission",
)
#: Modules with separate versions: the go.mod of k8s.io/kubernetes says which belongs to a Kubernetes version.
_REQUIRED = {
    "kube-openapi": "k8s.io/kube-openapi",
    "structured-merge-diff": "sigs.k8s.io/structured-merge-diff/v6",
    "cel-go": "github.com/google/cel-go",
}
_KUBERNETES = "kubernetes"
_NAMES = "|".join(sorted((*_STAGING, *_REQUIRED, _KUBERNETES), key=len, reverse=True))
_TOKEN = re.compile(
    rf"(?P<url>https?://\S+)"
    rf"|(?<![\w/.-])(?:k8s\.io/|sigs\.k8s\.io/)?(?P<module>(?i:{_NAMES}))(?:'s)?(?=[\s/,.;):(]|$)(?: (?P<folder>[a-z]\w+)(?=[\s.,;]|$))?"
    rf"|(?P<path>[\w.{{}}*-]+(?:/(?:\{{[^}}]*\}}|[\w.*-])+)+|\w+\.go\b)"
    rf"|(?<![\w/])(?P<name>[A-Za-z][a-z0-9]*(?:[A-Z][a-z0-9]*)+)(?![\w/])"
)


class UpstreamError(Exception):
    """A module cannot be downloaded, or a version does not exist. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The text after one ``Source:`` and the module of kubeloop in which it stands."""

    module: str
    text: str


@dataclass(frozen=True, slots=True, order=True)
class UpstreamFile:
    """A file by its module's short name (``client-go``) and its path in that module."""

    module: str
    path: str


def statements(root: Path) -> Iterator[Statement]:
    """Yield every ``Source:`` statement of the modules below ``root``; it ends at an empty line or with its docstring or comment."""
    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        if "Source:" not in text:
            continue
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for words in _paragraphs(text):
            yield from (Statement(module, one.strip()) for one in words.split("Source:")[1:])


def _paragraphs(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "Source:" in node.value:
            yield from (" ".join(one.split()) for one in re.split(r"\n\s*\n", node.value) if "Source:" in one)
    comment: list[str] = []
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.lstrip("#: "))
        elif comment:
            if "Source:" in (words := " ".join(comment)):
                yield words
            comment = []


@dataclass
class Tree:
    """The Go files of one Kubernetes version, without tests and generated code. ``roots``: short name of a module to its folder."""

    roots: Mapping[str, Path]

    @cached_property
    def files(self) -> dict[str, list[str]]:
        return {name: sorted(_go_files(root)) for name, root in self.roots.items()}

    def read(self, file: UpstreamFile) -> str | None:
        """Return the text of a file, or None if this version lacks it."""
        path = self.roots[file.module] / file.path
        return path.read_text(errors="replace") if path.is_file() else None

    def find(self, text: str) -> set[UpstreamFile]:
        """Return the files that a ``Source:`` statement names: by path, folder, end of a path, or by a function if it names no path."""
        module = ""
        folder: UpstreamFile | None = None
        found: set[UpstreamFile] = set()
        names: list[str] = []
        for token in _TOKEN.finditer(text):
            if token["url"]:
                continue
            if token["module"] and token["module"].lower() in self.roots:
                module, folder = token["module"].lower(), None
                if token["folder"]:
                    found |= self._resolve(module, f"pkg/{token['folder']}", None) or self._inside(module, token["folder"])
            elif token["path"]:
                for path in _alternatives(token["path"].rstrip(".")):
                    files = self._resolve(module or _KUBERNETES, path, folder)
                    found |= files
                    if files and not path.endswith(".go"):
                        folder = UpstreamFile(module or _KUBERNETES, _common_folder(files))
            elif token["name"]:
                names.append(token["name"])
        if not found:
            found = {file for name in names for file in self._defined.get(name, ())}
        return found

    def _inside(self, module: str, folder: str) -> set[UpstreamFile]:
        return {UpstreamFile(module, one) for one in self.files[module] if one.startswith(f"{folder}/") and one.count("/") == 1}

    def _resolve(self, module: str, path: str, folder: UpstreamFile | None) -> set[UpstreamFile]:
        pattern = re.escape(path).replace(r"\*", "[^/]*")
        if path.endswith(".go"):
            inside = re.compile(rf"{re.escape(folder.path)}/(.*/)?{pattern}") if folder is not None and folder.module == module else None
            expressions = [one for one in (inside, re.compile(rf"(.*/)?{pattern}")) if one is not None]
        else:
            expressions = [re.compile(rf"{pattern}/[^/]*"), re.compile(rf"(.*/)?{pattern}/[^/]*"), re.compile(rf"(.*/)?{pattern}/.*")]
            expressions.append(re.compile(rf"(.*/)?{pattern}\.go"))
        for expression in expressions:
            if files := {UpstreamFile(module, one) for one in self.files.get(module, ()) if expression.fullmatch(one)}:
                return files
        return set()

    @cached_property
    def _defined(self) -> dict[str, set[UpstreamFile]]:
        """Map functions and types to the files that define them, without names that more than three files define."""
        defined: dict[str, set[UpstreamFile]] = {}
        for module, paths in self.files.items():
            for path in paths:
                text = (self.roots[module] / path).read_text(errors="replace")
                for name in re.findall(r"^(?:func (?:\([^)]*\) )?|type )(\w+)", text, re.MULTILINE):
                    defined.setdefault(name, set()).add(UpstreamFile(module, path))
        return {name: files for name, files in defined.items() if len(files) <= 3}


def _go_files(root: Path) -> Iterator[str]:
    for path in root.rglob("*.go"):
        relative = path.relative_to(root).as_posix()
        if not re.search(r"(_test\.go|zz_generated[^/]*|generated\.pb\.go|/testdata/.*|^vendor/.*|^test/.*)$", relative):
            yield relative


def _alternatives(path: str) -> Iterator[str]:
    """Yield the paths that ``a/{b,c}/d`` stands for."""
    if (braces := re.search(r"\{([^}]*)\}", path)) is None:
        yield path
        return
    for one in braces[1].split(","):
        yield from _alternatives((path[: braces.start()] + one + path[braces.end() :]).replace("//", "/"))


def _common_folder(files: Iterable[UpstreamFile]) -> str:
    folders = [one.path.split("/")[:-1] for one in files]
    common = folders[0]
    for other in folders[1:]:
        length = next((i for i, pair in enumerate(zip(common, other, strict=False)) if pair[0] != pair[1]), min(len(common), len(other)))
        common = common[:length]
    return "/".join(common)


@dataclass(frozen=True, slots=True)
class Change:
    """A cited file that differs between two versions. ``state``: ``M`` modified, ``D`` not in the new version, ``A`` not in the old one."""

    file: UpstreamFile
    state: str
    added: int
    removed: int
    cited_by: tuple[str, ...]
    difference: str


def changes(old: Tree, new: Tree, cited: Mapping[UpstreamFile, set[str]]) -> list[Change]:
    """Return the cited files that differ between two versions, those with the most changed lines first."""
    result: list[Change] = []
    for file, modules in cited.items():
        before, after = old.read(file), new.read(file)
        if before == after:
            continue
        lines = list(
            difflib.unified_diff(
                (before or "").splitlines(), (after or "").splitlines(), f"old/{file.path}", f"new/{file.path}", lineterm="", n=2
            )
        )
        added = sum(one.startswith("+") and not one.startswith("+++") for one in lines)
        removed = sum(one.startswith("-") and not one.startswith("---") for one in lines)
        state = "A" if before is None else "D" if after is None else "M"
        result.append(Change(file, state, added, removed, tuple(sorted(modules)), "\n".join(lines)))
    return sorted(result, key=lambda change: (-change.added - change.removed, change.file))


def cited_files(trees: Iterable[Tree], statements: Iterable[Statement]) -> tuple[dict[UpstreamFile, set[str]], list[Statement]]:
    """Map each file that a statement names in any of the trees to the modules that cite it; return the statements without a file too."""
    trees = list(trees)
    cited: dict[UpstreamFile, set[str]] = {}
    unresolved: list[Statement] = []
    for statement in statements:
        files = set().union(*(tree.find(statement.text) for tree in trees))
        for file in files:
            cited.setdefault(file, set()).add(statement.module)
        if not files:
            unresolved.append(statement)
    return cited, unresolved


def download(version: str) -> Tree:
    """Download the modules of a Kubernetes version (``1.36.3``) with Go and return their files.

    Raises:
        UpstreamError: Go is missing, or the version does not exist.
    """
    if re.fullmatch(r"1\.\d+\.\d+(-[\w.]+)?", version) is None:
        raise UpstreamError(f"{version!r} is not a Kubernetes version; write it as in 1.36.3")
    if shutil.which("go") is None:
        raise UpstreamError("Go is needed to download Kubernetes' modules; install Go and run the command again")
    minor = "0" + version.removeprefix("1")
    roots = _downloaded({_KUBERNETES: f"k8s.io/kubernetes@v{version}", **{name: f"k8s.io/{name}@v{minor}" for name in _STAGING}})
    required = (roots[_KUBERNETES] / "go.mod").read_text()
    others: dict[str, str] = {}
    for name, path in _REQUIRED.items():
        if (match := re.search(rf"{re.escape(path)} (v\S+)", required)) is not None:
            others[name] = f"{path}@{match[1]}"
    return Tree({**roots, **_downloaded(others)})


def _downloaded(modules: Mapping[str, str]) -> dict[str, Path]:
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(["go", "mod", "download", "-json", *modules.values()], cwd=empty, capture_output=True, text=True, check=False)
    folders: dict[str, Path] = {}
    decoder = json.JSONDecoder()
    text = done.stdout.lstrip()
    while text:
        answer, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        if error := answer.get("Error"):
            raise UpstreamError(f"Go cannot download {answer['Path']} {answer['Version']}: {error}")
        folders[f"{answer['Path']}@{answer['Version']}"] = Path(answer["Dir"])
    if done.returncode:
        raise UpstreamError(f"go mod download failed: {done.stderr.strip()}")
    return {name: folders[module] for name, module in modules.items()}


def _print_changes(changes: list[Change], cited: Mapping[UpstreamFile, set[str]], *, with_difference: bool) -> None:
    for one in changes:
        print(f"{one.state} {f'+{one.added}':>6} {f'-{one.removed}':>6}  {one.file.module} {one.file.path}")
        print(f"{'':17} cited by {', '.join(one.cited_by)}")
        if with_difference:
            print(one.difference, end="\n\n")
    print(f"{len(cited)} cited files, {len(changes)} changed, {len(cited) - len(changes)} as before")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.upstream_diff", description="Compare the upstream files that docstrings cite.")
    parser.add_argument("old", help="Kubernetes version, as in 1.35.0")
    parser.add_argument("new", nargs="?", help="Kubernetes version to compare with")
    parser.add_argument("--only", default="", metavar="MODULE", help="statements of modules whose name begins so: cache, apiserver.storage")
    parser.add_argument("--diff", action="store_true", help="print the differences too")
    parser.add_argument("--unresolved", action="store_true", help="print the statements that name no file of these versions")
    options = parser.parse_args(arguments)
    if options.new is None and not options.unresolved:
        parser.error("name two versions, or one and --unresolved")
    try:
        trees = [download(version) for version in (options.old, options.new) if version]
    except UpstreamError as error:
        print(error, file=sys.stderr)
        return 1
    cited, unresolved = cited_files(trees, (one for one in statements(_SOURCES) if one.module.startswith(options.only)))
    if options.unresolved:
        for statement in unresolved:
            print(f"{statement.module}: {statement.text}")
    if options.new:
        _print_changes(changes(trees[0], trees[1], cited), cited, with_difference=options.diff)
    print(f"{len(unresolved)} statements name a document, an RFC or no file")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
