"""The source files of a program under development, and their changes since the last check.

Once the program runs, these are the modules that it has imported; before, and after a failure, all modules of its package.

Files are compared by modification time and size, a few times a second, which works on every file system and in containers.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kubeloop.meta.errors import ConfigError

#: Folders without sources of the program.
_LEFT_OUT = {"__pycache__", "node_modules", "site-packages"}

Stamp = tuple[int, int, int]


def sources_of(target: str, extra_paths: Iterable[Path] = ()) -> SourceFiles:
    """Return the sources of ``module:attribute``: its top-level package; for a single module the Python files beside it.

    ``extra_paths`` are added to them. Nothing is imported.

    Raises:
        ConfigError: there is no such module here.
    """
    top = target.partition(":")[0].partition(".")[0]
    if not top.isidentifier():
        raise ConfigError(f"{target}: write MODULE:NAME, the module as Python imports it, such as web_operator.app:controllers")
    here = str(Path.cwd())
    # In the order of python -m: the working directory first.
    found = importlib.machinery.PathFinder.find_spec(top, [here, *sys.path])
    if found is None:
        raise ConfigError(f"{target}: no module {top} in {here}, nor on PYTHONPATH; run this in the folder that holds {top}/ or {top}.py")
    if found.submodule_search_locations is not None:
        return SourceFiles([Path(one) for one in found.submodule_search_locations], extra_paths)
    return SourceFiles([Path(found.origin or here).parent], extra_paths, flat=True)


class SourceFiles:
    """Python files in and below ``folders``, and ``extra_paths``: files, or folders of files of any kind (such as manifests).

    ``flat``: only files directly in ``folders``. ``narrow`` restricts the Python files to those imported by the program.
    """

    def __init__(self, folders: Iterable[Path], extra_paths: Iterable[Path] = (), *, flat: bool = False) -> None:
        self._folders = list(folders)
        self._others = list(extra_paths)
        self._flat = flat
        #: Empty: all Python files of the folders.
        self._imported: set[Path] = set()
        self._roots = (Path.cwd(), *((folder if flat else folder.parent).absolute() for folder in self._folders))
        self._seen = self._look()
        self._moving: dict[Path, Stamp] | None = None

    def __len__(self) -> int:
        return len(self._seen)

    def __str__(self) -> str:
        return ", ".join(shown(path) for path in [*self._folders, *self._others])

    @property
    def others(self) -> list[str]:
        """Further files and folders, relative to the working directory."""
        return [shown(path) for path in self._others]

    def narrow(self, imported: Iterable[Path]) -> None:
        """Watch only the Python files that the program imported: these, and those of earlier calls, without installed packages."""
        if new := {path for path in imported if self._is_own(path)} - self._imported:
            self._imported |= new
            self._look_again()

    def widen(self) -> None:
        """Watch all Python files of the folders again."""
        if self._imported:
            self._imported = set()
            self._look_again()

    def _look_again(self) -> None:
        """Update the watched files. Their last states stay, so that a change since then is still found."""
        self._seen = {path: self._seen.get(path, stamp) for path, stamp in self._look().items()}

    def _is_own(self, path: Path) -> bool:
        for root in self._roots:
            if path.is_relative_to(root):
                folders = path.relative_to(root).parts[:-1]
                return not any(name.startswith(".") or name in _LEFT_OUT for name in folders)
        return False

    def changed(self) -> list[Path]:
        """Return the files that were written, added or removed since the last call that returned files.

        It returns no files while they are still being written, that is while they differ from one call to the next.
        """
        now = self._look()
        if now == self._seen:
            self._moving = None
            return []
        if now != self._moving:
            self._moving = now
            return []
        found = sorted(path for path in now.keys() | self._seen.keys() if now.get(path) != self._seen.get(path))
        self._seen, self._moving = now, None
        return found

    def _look(self) -> dict[Path, Stamp]:
        found: dict[Path, Stamp] = {}
        for path in self._files():
            try:
                stat = path.stat()
            except OSError:
                continue  # It was there a moment ago.
            found[path] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        return found

    def _files(self) -> Iterator[Path]:
        yield from self._imported
        for folder in () if self._imported else self._folders:
            if self._flat:
                yield from folder.glob("*.py")
            else:
                yield from (path for path in _below(folder) if path.suffix == ".py")
        for other in self._others:
            if other.is_dir():
                yield from _below(other)
            else:
                yield other


def shown(path: Path) -> str:
    """Return a path as text, relative to the working directory if the file is below it."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _below(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _LEFT_OUT:
            continue
        if not entry.is_dir():
            yield entry
        elif not entry.is_symlink() and not (entry / "pyvenv.cfg").exists():
            yield from _below(entry)
