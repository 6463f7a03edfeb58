"""One kubeconfig file: its tree as it stands there, and the typed entries in it.

Messages name file and field, never a value: values are secrets.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from kubeloop.config.kubeconfig.entries import Document, JSONObject
from kubeloop.config.kubeconfig.plain_yaml import read_plain
from kubeloop.meta.errors import ConfigError, DecodeError


class KubeconfigFile:
    """``tree`` is all of the file, unknown fields too; ``document`` is what the model knows of it. ``exists`` False: no such file yet."""

    def __init__(self, path: Path, tree: JSONObject, *, exists: bool) -> None:
        """
        Raises:
            ConfigError: a field is of another type, or a name stands twice; the text names file and field.
        """
        self.path = path
        self.tree = tree
        self.exists = exists
        self.document = _document(tree, path)

    def refresh(self) -> None:
        """Read the typed entries anew after ``tree`` was changed.

        Raises:
            ConfigError: as at the start.
        """
        self.document = _document(self.tree, self.path)

    def __repr__(self) -> str:
        return f"KubeconfigFile({str(self.path)!r})"


def read_file(path: Path) -> KubeconfigFile:
    """The file; an empty one, which does not exist, if there is none.

    Raises:
        ConfigError: it cannot be read, is not YAML, or a field is of another type; line and column or path of the field are named.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return KubeconfigFile(path, {}, exists=False)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from error
    tree = _tree(text, path)
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise ConfigError(f'{path}: not a kubeconfig: it should hold fields such as "clusters" and "contexts"')
    return KubeconfigFile(path, tree, exists=True)


def _document(tree: JSONObject, path: Path) -> Document:
    try:
        document = msgspec.convert(_without_nulls(tree), Document)
    except msgspec.ValidationError as error:
        what, _, field = str(error).partition(" - at `$.")
        where = _with_names(field.rstrip("`"), tree) or "document"
        # YAML takes 123 for a number and y for true; kubectl refuses them too where it wants text.
        way_out = (
            "put the value in quotes"
            if what.startswith("Expected `str`") and "array" not in what and "object" not in what
            else "correct the field"
        )
        raise ConfigError(f"{path}: {where}: {what[:1].lower()}{what[1:]}; {way_out}") from error
    if document.kind not in ("Config", ""):
        raise ConfigError(f'{path}: kind: "{document.kind}" is not a kubeconfig, whose kind is Config')
    if document.api_version not in ("v1", ""):
        raise ConfigError(f'{path}: apiVersion: "{document.api_version}" is not known; kubeconfigs are of v1')
    _check_names(document.clusters, "clusters", path)
    _check_names(document.users, "users", path)
    _check_names(document.contexts, "contexts", path)
    return document


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _check_names(entries: list[N], field: str, path: Path) -> None:
    seen: set[str] = set()
    for at, entry in enumerate(entries):
        if entry.name in seen:
            raise ConfigError(f'{path}: {field}[{at}].name: "{entry.name}" stands twice in this file; rename or remove one')
        seen.add(entry.name)


def _with_names(field: str, tree: JSONObject) -> str:
    """``users[0].user.token`` with the name of the entry: people do not count entries."""
    found = re.match(r"(clusters|users|contexts)\[(\d+)\]", field)
    if found is None:
        return field
    entry = tree[found[1]][int(found[2])]
    name = entry.get("name") if isinstance(entry, dict) else None
    return f'{found[0]} ("{name}"){field[found.end() :]}' if isinstance(name, str) and name else field


def _tree(text: bytes, path: Path) -> Any:
    if text.lstrip()[:1] == b"{":
        # JSON is YAML, and needs no YAML parser to be imported.
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # flow-style YAML that is no JSON; or broken, and then the YAML parser knows line and column
    elif (plain := read_plain(text)) is not None:
        return plain[0]
    import yaml

    from kubeloop.codec.yaml import Loader
    from kubeloop.codec.yaml_limits import check_limits

    try:
        scanner = Loader(text)
        try:
            check_limits(scanner)
        finally:
            scanner.dispose()
        return yaml.load(text, Loader=Loader)  # noqa: S506 - it makes nothing but text, numbers, booleans, lists and maps
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}{place}: not valid YAML: {error.problem or error.context}; correct that line") from None
    except DecodeError as error:
        raise ConfigError(f"{path}: not a kubeconfig: {error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError):
        raise ConfigError(f"{path}: not valid YAML: it holds characters that no text has; is it a kubeconfig?") from None


def _without_nulls(tree: Any) -> Any:
    """An explicit null is as good as a missing field, as in Go."""
    if isinstance(tree, dict):
        return {key: _without_nulls(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [_without_nulls(item) for item in tree]
    return tree
