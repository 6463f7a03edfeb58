"""Settings of a manager: the options that a file (YAML or TOML) and environment variables may set, and how they are read."""

from __future__ import annotations

import difflib
import logging
import os
import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from kubeloop.client.mapper import ALL_NAMESPACES
from kubeloop.codec.yaml import read_yaml
from kubeloop.controller.election.lease import LeaseConfig
from kubeloop.controller.manager.endpoints import Endpoints
from kubeloop.controller.reader.reader import CacheScope
from kubeloop.meta import ConfigError, DecodeError


class _Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class RateSettings(_Settings, frozen=True):
    """A rate limit: ``per_second`` on average, ``burst`` at once.

    Example:
        >>> RateSettings(per_second=20).burst
        1
    """

    per_second: float
    burst: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.per_second < inf or self.burst < 1:
            raise ValueError(f"perSecond must be above 0 and burst at least 1, not {self.per_second:g} and {self.burst}")


class LeaderElectionSettings(_Settings, frozen=True):
    """Leader election in the settings of a manager; fields and defaults are those of ``LeaseConfig``. Times are in seconds.

    Example:
        >>> LeaderElectionSettings(name="my-operator", namespace="ops").config().lease_duration
        15.0
    """

    name: str
    namespace: str
    identity: str = ""
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    release_on_stop: bool = True

    def __post_init__(self) -> None:
        try:
            self.config()
        except ConfigError as error:
            raise ValueError(str(error)) from None

    def config(self) -> LeaseConfig:
        """Return the configuration of a new candidate, with a unique identity unless ``identity`` is set."""
        base = LeaseConfig(
            self.name,
            self.namespace,
            lease_duration=self.lease_duration,
            renew_deadline=self.renew_deadline,
            retry_period=self.retry_period,
            release_on_stop=self.release_on_stop,
        )
        return replace(base, identity=self.identity) if self.identity else base


class ManagerSettings(_Settings, frozen=True):
    """Settings of one manager, from a file, the environment or a program. None leaves the manager's argument.

    Attributes:
        health: Address as in ``Endpoints``.
        metrics: Address as in ``Endpoints``.
        debug: Address as in ``Endpoints``.
        leader_election: Leader election.
        namespaces: Namespaces of all caches.
        workers: Name of a controller -> number of its workers.
        reconciles: Rate limit of all controllers together.
        requests: Rate limit of the requests of the first cluster's client.
        grace: Seconds that work has to end on a stop. Less than 0: no limit.
        sync_timeout: Seconds in which caches must sync.
        log_level: If this or ``log_format`` is set, the manager configures the root logger while it runs (``LogOutput``).
        log_format: ``json`` or ``text``.

    Example:
        >>> from kubeloop import Manager
        >>> settings = ManagerSettings(workers={"foo": 4}, reconciles=RateSettings(per_second=20, burst=5))
        >>> manager = Manager(client, settings=settings)
    """

    health: str | None = None
    metrics: str | None = None
    debug: str | None = None
    leader_election: LeaderElectionSettings | None = None
    namespaces: tuple[str, ...] | None = None
    workers: dict[str, int] = {}
    reconciles: RateSettings | None = None
    requests: RateSettings | None = None
    grace: float | None = None
    sync_timeout: float | None = None
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    log_format: Literal["json", "text"] | None = None

    def __post_init__(self) -> None:
        for name, number in self.workers.items():
            if number < 1:
                raise ValueError(f"workers: {name} needs at least 1, not {number}")
        if self.grace is not None and not isfinite(self.grace):
            raise ValueError(f"grace must be a number of seconds, or -1 to wait without a limit, not {self.grace}")
        if self.sync_timeout is not None and not 0 < self.sync_timeout < inf:
            raise ValueError(f"syncTimeout must be above 0 seconds, not {self.sync_timeout:g}")
        try:
            self.endpoints(None)
            CacheScope(namespaces=ALL_NAMESPACES if self.namespaces is None else self.namespaces)
        except (ConfigError, ValueError) as error:
            raise ValueError(str(error)) from None

    def endpoints(self, base: Endpoints | None) -> Endpoints | None:
        """Return ``base`` with the addresses of these settings. An empty address disables an endpoint."""
        named = {"health": self.health, "metrics": self.metrics, "debug": self.debug}
        overrides = {name: address for name, address in named.items() if address is not None}
        if not overrides:
            return base
        return replace(base or Endpoints(), **overrides)  # type: ignore[arg-type]  # all of them are texts


_LOG = logging.getLogger("kubeloop.controller.manager")

#: Prefix of each variable: ``KUBELOOP_MANAGER_LEADER_ELECTION_LEASE_DURATION=30``.
PREFIX: Final = "KUBELOOP_MANAGER_"

#: Variables that Kubernetes adds to the environment of pods (documentation, "Accessing the Service": environment variables).
_OF_A_SERVICE = re.compile(rf"{PREFIX}(SERVICE_(HOST|PORT)|PORT(_|$))")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_PLACE = re.compile(r" - at `\$\.?(.*?)`$")


class SettingsFile:
    """The source of a manager's settings: a file and the environment. ``load`` reads them.

    Variables override the file. Their names are ``KUBELOOP_MANAGER_`` and the field in capitals; ``workers`` is JSON:
    ``KUBELOOP_MANAGER_WORKERS={"foo": 4}``.

    Args:
        path: The file (YAML or TOML). None: the environment only.
        environment: Variables. None: those of this process.

    Example:
        >>> Path("manager.yaml").write_text("workers: {foo: 4}")
        17
        >>> SettingsFile("manager.yaml", environment={"KUBELOOP_MANAGER_GRACE": "10"}).load().grace
        10.0
    """

    def __init__(self, path: Path | str | None = None, environment: Mapping[str, str] | None = None) -> None:
        self.path = Path(path) if path is not None else None
        self._environment = os.environ if environment is None else environment

    def stamp(self) -> tuple[int, int, int] | None:
        """Return a value that changes when the file is changed or replaced (as in a mounted ConfigMap); None if there is no file."""
        try:
            found = self.path.stat() if self.path is not None else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_ino, found.st_size) if found is not None else None

    def load(self) -> ManagerSettings:
        """Return the present settings.

        Raises:
            ConfigError: the file cannot be read, or a field has an invalid value; the message names file or variable, field, and what to do
                instead.
        """
        tree = self._tree()
        location = str(self.path) if self.path is not None else "the environment"
        if self.path is not None:
            _converted(tree, location)  # Before the variables, so that an error in the file is reported for the file.
        known = list(_variables(ManagerSettings, PREFIX))
        for variable, place, kind in known:
            if variable in self._environment:
                _put(tree, place, _read(variable, self._environment[variable], kind))
        self._tell_unknown([variable for variable, _, _ in known])
        return _converted(tree, f"{location} with {PREFIX}* of the environment" if self.path is not None else location)

    def _tell_unknown(self, known: list[str]) -> None:
        """Log unknown variables. They are not errors: a Service named ``kubeloop-manager`` adds variables with the same prefix to pods."""
        for variable in sorted(self._environment):
            if variable.startswith(PREFIX) and variable not in known and not _OF_A_SERVICE.match(variable):
                near = difflib.get_close_matches(variable, known, 1)
                _LOG.warning("%s sets nothing; %s", variable, f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}")

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


def _converted(tree: dict[str, Any], location: str) -> ManagerSettings:
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
        raise ConfigError(f"settings {location}: {field}: no such field; {hint}")
    raise ConfigError(f"settings {location}: {at + ': ' if at else ''}{message[:1].lower()}{message[1:]}".replace("`", ""))


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
