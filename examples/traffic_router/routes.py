"""The Router's configuration: which Service gets the next request for a host."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec
import yaml

_POLL_SECONDS = 0.3
_logger = logging.getLogger(__name__)


class RoutesError(Exception):
    """A configuration cannot be used. The text says where, and why."""


class HeaderChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests whose header ``name`` has ``value`` go to ``service``."""

    name: str
    value: str
    service: str


class HostRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Services of one host.

    Attributes:
        host: Name of the host, without a port.
        weights: Name of a Service -> its share of the requests, in relation to the sum of all. 0: no request.
        headers: Choices that come before the weights; the first that matches decides.
    """

    host: str
    weights: dict[str, int]
    headers: tuple[HeaderChoice, ...] = ()

    def __post_init__(self) -> None:
        if min(self.weights.values(), default=0) < 0 or not any(self.weights.values()):
            raise ValueError(f"weights of {self.host}: at least one must be positive, and none negative")


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    routes: tuple[HostRoute, ...]


class WeightedRotation:
    """Yields names in proportion to their weights, evenly mixed: weights 2 and 1 give A B A, A B A.

    It is the smooth weighted round-robin of NGINX: each turn adds its weight to each name, and the highest sum wins and pays the total.

    Args:
        weights: Name -> weight.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = {name: weight for name, weight in weights.items() if weight}
        self._total = sum(self._weights.values())
        self._sums = dict.fromkeys(self._weights, 0)

    def next(self) -> str:
        for name, weight in self._weights.items():
            self._sums[name] += weight
        chosen = max(self._sums, key=self._sums.__getitem__)
        self._sums[chosen] -= self._total
        return chosen


class RouteTable:
    """The routes of all hosts.

    Args:
        routes: One for each host.

    Example:
        >>> RouteTable.parse("routes: [{host: web.example, weights: {web-v1: 1}}]").service_for("web.example", {})
        'web-v1'
    """

    def __init__(self, routes: tuple[HostRoute, ...]) -> None:
        self._routes = {route.host.lower(): (route, WeightedRotation(route.weights)) for route in routes}

    @classmethod
    def parse(cls, text: str) -> RouteTable:
        """Return the table that YAML or JSON describes.

        Raises:
            RoutesError: The text is no YAML, or no such table.
        """
        try:
            return cls(msgspec.convert(yaml.safe_load(text), _Document).routes)
        except (yaml.YAMLError, msgspec.ValidationError) as error:
            raise RoutesError(" ".join(str(error).split())) from error

    def service_for(self, host: str, headers: Mapping[str, str]) -> str | None:
        """Return the Service that gets the next request, or None for an unknown host.

        Args:
            host: The Host header of the request. Its port does not count.
            headers: All headers, by name in any case.
        """
        found = self._routes.get(_without_port(host).lower())
        if found is None:
            return None
        route, rotation = found
        for choice in route.headers:
            if headers.get(choice.name) == choice.value:
                return choice.service
        return rotation.next()


class RoutesFile:
    """The table in a file. A changed file replaces it; a file with a mistake does not.

    Args:
        path: A YAML or JSON file.

    Raises:
        RoutesError: The file has a mistake now.
        OSError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._read_stamp()
        self.table = RouteTable.parse(path.read_text())

    def refresh(self) -> bool:
        """Read the file again if it has changed, and return whether its table is a new one."""
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            self.table = RouteTable.parse(self._path.read_text())
        except (OSError, RoutesError) as error:
            _logger.warning("%s: %s; the routes in force stay", self._path.name, error)
            return False
        _logger.info("%s: read again", self._path.name)
        return True

    async def follow(self) -> None:
        """Call ``refresh`` a few times in a second, until it is cancelled."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            self.refresh()

    def _read_stamp(self) -> tuple[int, int, int]:
        status = self._path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino


def _without_port(host: str) -> str:
    # An IPv6 address has colons within its brackets.
    name, _, port = host.rpartition(":")
    return name if port.isdigit() else host
