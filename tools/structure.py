"""``python -m tools.structure``: prints number, size and importers of the modules of kubeloop, and the cycles between folders.

A module below ``SMALL`` lines that fewer than two others import is a candidate for a merge (CONTRIBUTING.md). Generated modules are
left out: ``kubeloop.api``, and files whose first line says so.

Exit status: 1 if a module has more than ``LARGE`` lines, or a package has a higher figure than ``tools/structure.json`` allows, or none
there. ``--update`` adds packages, and lowers figures to those of today; it never raises one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import grimp

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
ALLOWED = Path(__file__).with_suffix(".json")
#: Lines below which a module should have two importers.
SMALL = 120
#: Lines that a module never exceeds.
LARGE = 500
_GENERATED = "kubeloop.api"


@dataclass(frozen=True)
class Module:
    """A module with its size, and the modules that import it."""

    name: str
    lines: int
    importers: frozenset[str]
    is_package: bool

    @property
    def package(self) -> str:
        """Name of the package directly below ``kubeloop`` that the module is in; empty for a module of ``kubeloop`` itself."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 2 or (self.is_package and len(parts) == 2) else ""

    @property
    def is_candidate(self) -> bool:
        """True for a module that is too small to stand alone."""
        return not self.is_package and self.lines < SMALL and len(self.importers) < 2


@dataclass(frozen=True)
class PackageFigures:
    """What a package should have less of."""

    #: Modules with fewer than two importers and fewer than ``SMALL`` lines.
    candidates: int
    #: Folders that import each other, directly or through others.
    knotted: int


def modules_of(graph: grimp.ImportGraph, source: Path = SOURCE) -> list[Module]:
    """Return the hand-written modules of a graph, by name."""
    found = []
    for name in sorted(graph.modules):
        if name == _GENERATED or name.startswith(f"{_GENERATED}."):
            continue
        path = source.joinpath(*name.split("."))
        is_package = path.is_dir()
        text = (path / "__init__.py" if is_package else path.with_suffix(".py")).read_text()
        if "generated" in text.partition("\n")[0].lower():
            continue
        found.append(Module(name, text.count("\n"), frozenset(graph.find_modules_that_directly_import(name)), is_package))
    return found


def folder_imports(graph: grimp.ImportGraph, package: str) -> dict[str, set[str]]:
    """Folder of a package -> the other folders of the package that its modules import. Modules directly in the package count as none."""
    prefix = f"{package}."
    edges: dict[str, set[str]] = defaultdict(set)

    def folder(name: str) -> str:
        inside = name.removeprefix(prefix).split(".")
        is_folder = len(inside) > 1 or bool(graph.find_children(name))
        return inside[0] if name.startswith(prefix) and is_folder else ""

    for name in graph.modules:
        if (start := folder(name)) == "":
            continue
        edges[start] |= {end for imported in graph.find_modules_directly_imported_by(name) if (end := folder(imported)) not in ("", start)}
    return dict(edges)


def knots(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other, the largest first (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for following in sorted(edges.get(node, ())):
            if following not in index:
                visit(following)
                low[node] = min(low[node], low[following])
            elif following in stack:
                low[node] = min(low[node], index[following])
        if low[node] == index[node]:
            at = stack.index(node)
            group, stack[at:] = stack[at:], []
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(found, key=lambda group: (-len(group), group))


def problems(modules: list[Module], figures: dict[str, PackageFigures], allowed: dict[str, PackageFigures]) -> list[str]:
    """Return the figures that are worse than allowed, each as a sentence that says what to do."""
    result = [
        f"{module.name} has {module.lines} lines; split it by concepts (at most {LARGE})" for module in modules if module.lines > LARGE
    ]
    for package, now in figures.items():
        if package not in allowed:
            result.append(f"kubeloop.{package}: {ALLOWED.name} has no figures of it; run python -m tools.structure --update")
            continue
        for name, most in asdict(allowed[package]).items():
            if (value := getattr(now, name)) > most:
                result.append(f"kubeloop.{package}: {name} {value}, allowed {most}; merge modules or cut imports ({ALLOWED.name})")
    return result


def measure(graph: grimp.ImportGraph, modules: list[Module]) -> dict[str, PackageFigures]:
    """Return the figures of each package."""
    by_package: dict[str, list[Module]] = defaultdict(list)
    for module in modules:
        by_package[module.package].append(module)
    return {
        package: PackageFigures(
            sum(module.is_candidate for module in members),
            sum(map(len, knots(folder_imports(graph, f"kubeloop.{package}")))) if package else 0,
        )
        for package, members in sorted(by_package.items())
    }


def lower(now: PackageFigures, allowed: PackageFigures) -> PackageFigures:
    """Return the lower of each figure."""
    return PackageFigures(*map(min, asdict(now).values(), asdict(allowed).values()))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.structure", description="Print how the modules of kubeloop are cut.")
    parser.add_argument("package", nargs="?", help="list the candidates and knots of this package, such as cache")
    parser.add_argument("--update", action="store_true", help=f"lower the figures of {ALLOWED.name} to those of today")
    options = parser.parse_args(arguments)
    graph = grimp.build_graph("kubeloop", cache_dir=str(ROOT / ".import_linter_cache"))
    found = modules_of(graph)
    figures = measure(graph, found)
    stored = json.loads(ALLOWED.read_text()) if ALLOWED.exists() else {}
    allowed = {package: PackageFigures(**values) for package, values in stored.items()}
    if options.package:
        _print_package(graph, found, options.package)
        return 0
    _print_table(found, figures)
    wrong = problems(found, figures, allowed)
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    if options.update:
        lowest = {package: asdict(lower(now, allowed.get(package, now))) for package, now in figures.items()}
        ALLOWED.write_text(json.dumps(lowest, indent=1) + "\n")
    return 1 if wrong else 0


def _print_table(modules: list[Module], figures: dict[str, PackageFigures]) -> None:
    print(f"{'package':<14}{'modules':>8}{'lines':>9}{'median':>8}{'candidates':>12}{'knotted':>9}")
    for package, now in figures.items():
        sizes = [module.lines for module in modules if module.package == package and not module.is_package]
        print(f"{package or '-':<14}{len(sizes):>8}{sum(sizes):>9}{median(sizes or [0]):>8.0f}{now.candidates:>12}{now.knotted:>9}")
    sizes = [module.lines for module in modules if not module.is_package]
    candidates, knotted = (sum(getattr(now, name) for now in figures.values()) for name in ("candidates", "knotted"))
    print(f"{'all':<14}{len(sizes):>8}{sum(sizes):>9}{median(sizes):>8.0f}{candidates:>12}{knotted:>9}")


def _print_package(graph: grimp.ImportGraph, modules: list[Module], package: str) -> None:
    edges = folder_imports(graph, f"kubeloop.{package}")
    for group in knots(edges):
        print(f"folders that import each other: {', '.join(group)}")
        for start in group:
            print(f"  {start} -> {', '.join(sorted(edges[start].intersection(group)))}")
    print(f"modules below {SMALL} lines with fewer than two importers:")
    for module in modules:
        if module.package == package and module.is_candidate:
            print(f"  {module.name.removeprefix('kubeloop.'):<60}{module.lines:>5}  {', '.join(sorted(module.importers)) or '-'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
