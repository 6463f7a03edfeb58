"""One kubeconfig file: its tree and its typed entries.

Messages name file and field, never a value: values may be secrets.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from kubeloop.config.kubeconfig.entries import KubeconfigDocument
from kubeloop.meta.errors import ConfigError, DecodeError
from kubeloop.types import JSONObject

# Parses the plain YAML that kubectl and similar tools write: maps and lists in blocks, words, quoted text.
#
# Other files go to a YAML parser, whose import takes a tenth of the time to the first request. Both give the same result:
# a test compares them.


_DEEPEST = 32
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_./-]*):(?: +(.*))?")
#: A word that can only be text: it begins with a letter, a slash or as an option of a program, and no colon ends it.
_WORD = re.compile(r"(?:-{0,2}[A-Za-z]|/)(?:[A-Za-z0-9_./+=@:,%~?&-]*[A-Za-z0-9_./+=@,%~?&-])?")
_DOUBLE = re.compile(r'"([^"\\]*)"')
_SINGLE = re.compile(r"'([^']*)'")
_EXACT: dict[str, Any] = {"true": True, "false": False, "null": None}
#: The words that YAML 1.1 reads as booleans and null, in any spelling.
_NO_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))


class _NotPlainError(Exception):
    """The text needs a YAML parser."""


def read_plain(text: bytes) -> tuple[Any] | None:
    """Return the tree of a plain YAML text in a tuple, or None if only a YAML parser can read the text."""
    if not text.isascii() or b"\t" in text or b"\r" in text or b"\x00" in text:
        return None
    lines: list[tuple[int, str]] = []
    for line in text.decode("ascii").split("\n"):
        content = line.strip(" ")
        if content and not content.startswith("#"):
            lines.append((len(line) - len(line.lstrip(" ")), content))
    if not lines:
        return (None,)
    try:
        reader = _Reader(lines)
        tree = reader.block(0, 0)
        return (tree,) if reader.at == len(lines) else None
    except _NotPlainError:
        return None


class _Reader:
    """Parses lines. ``at`` is the index of the next line. Each line is its indentation and the text after it."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self._lines = lines
        self.at = 0

    def block(self, indent: int, depth: int) -> Any:
        """Parse the map or list whose lines begin at ``indent``."""
        if depth > _DEEPEST or self._lines[self.at][0] != indent:
            raise _NotPlainError
        return self._list(indent, depth) if self._is_item(self.at) else self._map(indent, depth)

    def _map(self, indent: int, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while self._indent(self.at) == indent and not self._is_item(self.at):
            key, value = _key(self._lines[self.at][1])
            if key in result:
                raise _NotPlainError
            self.at += 1
            result[key] = self._nested(indent, depth) if value is None else self._scalar(value, indent)
        return result

    def _list(self, indent: int, depth: int) -> list[Any]:
        result: list[Any] = []
        while self._indent(self.at) == indent and self._is_item(self.at):
            rest = self._lines[self.at][1][2:]
            if _KEY.fullmatch(rest):
                # A map that begins after the dash continues below its first key.
                self._lines[self.at] = (indent + 2, rest)
                result.append(self.block(indent + 2, depth + 1))
            else:
                self.at += 1
                result.append(self._scalar(rest, indent))
        return result

    def _nested(self, indent: int, depth: int) -> Any:
        """Parse the value of a key whose line has none: a deeper block, or a list, which may have the key's own indentation."""
        below = self._indent(self.at)
        if below > indent or (below == indent and self._is_item(self.at)):
            return self.block(below, depth + 1)
        return None

    def _scalar(self, text: str, indent: int) -> Any:
        if self._indent(self.at) > indent:
            raise _NotPlainError  # it continues in the next line
        return _value(text)

    def _indent(self, at: int) -> int:
        return self._lines[at][0] if at < len(self._lines) else -1

    def _is_item(self, at: int) -> bool:
        return self._lines[at][1].startswith("- ")


def _key(line: str) -> tuple[str, str | None]:
    match = _KEY.fullmatch(line)
    if match is None or match[1].lower() in _NO_WORDS:
        raise _NotPlainError
    return match[1], match[2]


def _value(text: str) -> Any:
    if text in _EXACT:
        return _EXACT[text]
    if text in ("{}", "[]"):
        return {} if text == "{}" else []
    if _WORD.fullmatch(text) and text.lower() not in _NO_WORDS:
        return text
    quoted = _DOUBLE.fullmatch(text) or _SINGLE.fullmatch(text)
    if quoted is None or not quoted[1].isprintable():
        raise _NotPlainError
    return quoted[1]


class KubeconfigFile:
    """A kubeconfig file. ``tree`` is its whole content, ``document`` the known part. ``exists`` says whether the file exists."""

    def __init__(self, path: Path, tree: JSONObject, *, exists: bool) -> None:
        """Read the entries of a file from its tree.

        Raises:
            ConfigError: A field has another type, or a name occurs twice; the message names file and field.
        """
        self.path = path
        self.tree = tree
        self.exists = exists
        self.document = _document(tree, path)

    def refresh(self) -> None:
        """Decode the typed entries again after ``tree`` was changed.

        Raises:
            ConfigError: As for the constructor.
        """
        self.document = _document(self.tree, self.path)

    def __repr__(self) -> str:
        return f"KubeconfigFile({str(self.path)!r})"


def read_file(path: Path) -> KubeconfigFile:
    """Return the content of a kubeconfig file, or an empty KubeconfigFile whose ``exists`` is false if the file does not exist.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or a field has another type; the message names line and column, or the field.
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


# msgspec completes its data about these structs at their first use, which two threads must not do at once (see ``codec.decoding``).
# Therefore they are used first here, under the import lock.
msgspec.convert({}, KubeconfigDocument)


def _document(tree: JSONObject, path: Path) -> KubeconfigDocument:
    try:
        document = msgspec.convert(_without_nulls(tree), KubeconfigDocument)
    except msgspec.ValidationError as error:
        what, _, field = str(error).partition(" - at `$.")
        where = _with_names(field.rstrip("`"), tree) or "document"
        # YAML reads 123 as a number and y as true; kubectl refuses them too where it expects text.
        hint = (
            "put the value in quotes"
            if what.startswith("Expected `str`") and "array" not in what and "object" not in what
            else "correct the field"
        )
        raise ConfigError(f"{path}: {where}: {what[:1].lower()}{what[1:]}; {hint}") from error
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
            raise ConfigError(f'{path}: {field}[{at}].name: "{entry.name}" occurs twice in this file; rename or remove one')
        seen.add(entry.name)


def _with_names(field: str, tree: JSONObject) -> str:
    """Return ``users[0].user.token`` with the name of the entry: people do not count entries."""
    match = re.match(r"(clusters|users|contexts)\[(\d+)\]", field)
    if match is None:
        return field
    entry = tree[match[1]][int(match[2])]
    name = entry.get("name") if isinstance(entry, dict) else None
    return f'{match[0]} ("{name}"){field[match.end() :]}' if isinstance(name, str) and name else field


def _tree(text: bytes, path: Path) -> Any:
    if text.lstrip()[:1] == b"{":
        # JSON is YAML, and needs no YAML parser to be imported.
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # flow-style YAML that is not JSON; or a broken file, and then the YAML parser knows line and column
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
    """Remove explicit nulls, which mean the same as missing fields, as in Go."""
    if isinstance(tree, dict):
        return {key: _without_nulls(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [_without_nulls(item) for item in tree]
    return tree
