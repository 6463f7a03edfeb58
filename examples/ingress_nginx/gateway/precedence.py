"""The order in which the rules of several routes are compared with a request: host names first, then paths, then conditions.

The model compares paths first. Where a route with a wider host name has a longer path, the rules of the narrower host name that match
the same requests are put in front of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from examples.ingress_nginx.model.configuration import CATCH_ALL, Location, PathMatch, Rewrite, Route

#: Routes by kind and text of their path, in the order in which they are compared.
Places = dict[tuple[PathMatch, str], list[Route]]


def names_of(host: str) -> list[str]:
    """Return the host names that cover a host, the most specific first: itself, wildcards, and the empty name for all hosts."""
    if host == CATCH_ALL:
        return [""]
    labels = host.removeprefix("*.").split(".")
    wildcards = ["*." + ".".join(labels[start:]) for start in range(0 if host.startswith("*.") else 1, len(labels))]
    return [*([] if host.startswith("*.") else [host]), *wildcards, ""]


def merge_layers(layers: Iterable[Places]) -> Places:
    """Merge the routes of several host names that cover one host, the most specific name first."""
    merged: Places = {}
    for layer in layers:
        below: Places = {}
        for (match, path), routes in layer.items():
            known = merged.get((match, path))
            front = [*(known or ()), *(_moved(route, prefix, match, path) for prefix, route in _covering(merged, match, path))]
            if known is not None or not any(not route.conditions for route in front):
                below[match, path] = _reachable([*front, *routes])
        merged |= below
    return merged


def locations_of(places: Places) -> tuple[Location, ...]:
    """Return the locations in the order in which they are compared: exact paths, expressions, prefixes; in each the longest first.

    The specification leaves the order of expressions open.
    """
    groups = {PathMatch.EXACT: 0, PathMatch.REGEX: 1, PathMatch.PREFIX: 2}
    ordered = sorted(places, key=lambda place: (groups[place[0]], -len(place[1]), place[1]))
    return tuple(Location(path, match, tuple(_reachable(places[match, path]))) for match, path in ordered)


def _reachable(routes: Iterable[Route]) -> list[Route]:
    """Return the routes up to the first one without conditions, which gets all requests that reach it."""
    result = []
    for route in routes:
        result.append(route)
        if not route.conditions:
            break
    return result


def _covering(places: Mapping[tuple[PathMatch, str], list[Route]], match: PathMatch, path: str) -> Iterator[tuple[str, Route]]:
    """Yield the routes of shorter prefixes that match all requests of a path. Nothing is known of the requests of an expression."""
    if match is PathMatch.REGEX:
        return
    prefix = path if match is PathMatch.EXACT else path.rpartition("/")[0]
    while True:
        for route in places.get((PathMatch.PREFIX, prefix or "/"), ()):
            yield prefix, route
        if not prefix:
            return
        prefix = prefix.rpartition("/")[0]


def _moved(route: Route, prefix: str, match: PathMatch, path: str) -> Route:
    """Return a route of a prefix for a location with a longer path, so that it rewrites the same part of the request's path."""
    rest = path[len(prefix) :] if path != "/" else ""
    rewrite, redirect = route.rewrite, route.policy.redirect
    if rewrite is not None and rewrite.prefix:
        rewrite = Rewrite(rewrite.replacement + rest, prefix=match is PathMatch.PREFIX)
    if redirect is not None and redirect.replace_prefix:
        redirect = replace(redirect, path=redirect.path.rstrip("/") + rest, replace_prefix=match is PathMatch.PREFIX)
    if rewrite is route.rewrite and redirect is route.policy.redirect:
        return route
    return replace(route, rewrite=rewrite, policy=replace(route.policy, redirect=redirect))
