"""Reads settings: a YAML or TOML file, and environment variables over it. A fault names file, field and what may stand there."""

from __future__ import annotations

import difflib
import logging
import os
import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from kubeloop.codec.yaml import read_yaml
from kubeloop.controller.manager.settings.model import ManagerSettings
from kubeloop.meta import ConfigError, DecodeError

log = logging.getLogger("kubeloop.controller.manager")

#: Before the name of each variable: ``KUBELOOP_MANAGER_LEADER_ELECTION_LEASE_DURATION=30``.
PREFIX: Final = "KUBELOOP_MANAGER_"

#: What Kubernetes puts into the environment of pods (documentation, "Accessing the Service": environment variables).
_OF_A_SERVICE = re.compile(rf"{PREFIX}(SERVICE_(HOST|PORT)|PORT(_|$))")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_PLACE = re.compile(r" - at `\$\.?(.*?)`$")


class SettingsFile:
    """Where a manager's settings come from. ``path`` None: the environment only. ``environment`` None: this process's.

    Variables win over the file, as the name of a field in capitals after ``KUBELOOP_MANAGER_``; ``workers`` is one of JSON:
    ``KUBELOOP_MANAGER_WORKERS={"foo": 4}``.
    """

    def __init__(self, path: Path | str | None = None, environment: Mapping[str, str] | None = None) -> None:
        self.path = Path(path) if path is not None else None
        self._environment = os.environ if environment is None else environment

    def stamp(self) -> tuple[int, int, int] | None:
        """Differs when the file was changed or replaced, also by a ConfigMap's link; None while there is none."""
        try:
            found = self.path.stat() if self.path is not None else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_ino, found.st_size) if found is not None else None

    def load(self) -> ManagerSettings:
        """What is set now.

        Raises:
            ConfigError: it cannot be read, or a field cannot be what it is; names file or variable, field, and the way out.
        """
        tree = self._tree()
        where = str(self.path) if self.path is not None else "the environment"
        if self.path is not None:
            _converted(tree, where)  # Before variables: so that a fault of the file is the file's.
        known = list(_variables(ManagerSettings, PREFIX))
        for variable, place, kind in known:
            if variable in self._environment:
                _put(tree, place, _read(variable, self._environment[variable], kind))
        self._tell_unknown([variable for variable, _, _ in known])
        return _converted(tree, f"{where} with {PREFIX}* of the environment" if self.path is not None else where)

    def _tell_unknown(self, known: list[str]) -> None:
        """No error: a Service named ``kubeloop-manager`` gives every pod beside it variables that begin so, too."""
        for variable in sorted(self._environment):
            if variable.startswith(PREFIX) and variable not in known and not _OF_A_SERVICE.match(variable):
                near = difflib.get_close_matches(variable, known, 1)
                log.warning("%s sets nothing; %s", variable, f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}")

    def _tree(self) -> dict[str, Any]:
        if self.path is None:
            return {}
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise ConfigError(f"settings {self.path} cannot be read: {error.strerror}") from None
        try:
            if self.path.suffix == ".toml":
                return tomllib.loads(data.decode())
            documents = read_yaml(data, name=str(self.path))
        except (DecodeError, ValueError) as error:
            raise ConfigError(f"settings {self.path} cannot be read: {error}") from None
        if len(documents) > 1:
            raise ConfigError(f"settings {self.path}: {len(documents)} documents; put everything into one")
        return documents[0] if documents else {}


def _converted(tree: dict[str, Any], where: str) -> ManagerSettings:
    try:
        return msgspec.convert(tree, ManagerSettings)
    except msgspec.ValidationError as error:
        text = str(error)
    place = _PLACE.search(text)
    at = place.group(1).removesuffix("[...]") if place is not None else ""
    message = _PLACE.sub("", text)
    unknown = _UNKNOWN.search(message)
    if unknown is not None:
        field = f"{at}.{unknown.group(1)}" if at else unknown.group(1)
        known = _names_at(at)
        near = difflib.get_close_matches(unknown.group(1), known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ConfigError(f"settings {where}: {field}: no such field; {hint}")
    raise ConfigError(f"settings {where}: {at + ': ' if at else ''}{message[:1].lower()}{message[1:]}".replace("`", ""))


def _names_at(place: str) -> list[str]:
    cls: Any = ManagerSettings
    for part in filter(None, place.split(".")):
        hints = get_type_hints(cls)
        cls = _struct_of(hints[next(one.name for one in msgspec.structs.fields(cls) if one.encode_name == part)])
    return [one.encode_name for one in msgspec.structs.fields(cls)]


def _variables(cls: Any, prefix: str) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    hints = get_type_hints(cls)
    for one in msgspec.structs.fields(cls):
        inner = _struct_of(hints[one.name])
        if inner is None:
            yield prefix + one.name.upper(), (one.encode_name,), hints[one.name]
        else:
            for variable, place, kind in _variables(inner, f"{prefix}{one.name.upper()}_"):
                yield variable, (one.encode_name, *place), kind


def _struct_of(hint: Any) -> type[msgspec.Struct] | None:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return next((one for one in options if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)


def _read(variable: str, text: str, kind: Any) -> Any:
    options = [get_origin(one) or one for one in (get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,))]
    try:
        if dict in options:
            return msgspec.convert(msgspec.json.decode(text), kind)
        if tuple in options:
            return [part.strip() for part in text.split(",") if part.strip()]
        return msgspec.convert(text, kind, strict=False)
    except msgspec.MsgspecError as error:
        message = _PLACE.sub("", str(error)).replace("`", "")
        raise ConfigError(f"{variable}={text!r}: {message[:1].lower()}{message[1:]}") from None


def _put(tree: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    for part in place[:-1]:
        if tree.get(part) is None:  # A section without content is null.
            tree[part] = {}
        tree = tree[part]
    tree[place[-1]] = value
