"""Which resource a person means by a word, as kubectl reads it: ``po``, ``Pod``, ``pods.v1.``, ``deploy.apps``, ``Deployment.v1.apps``.

Source: apimachinery pkg/api/meta/restmapper.go, priority.go and pkg/runtime/schema (ParseResourceArg, ParseKindArg); client-go
restmapper/shortcut.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from kubeloop.client.discovery.resources import ApiResource, Discovered


def resources_called(discovered: Discovered, word: str) -> tuple[ApiResource, ...]:
    """The resources that ``word`` may mean, the one that is meant first: each once, in its preferred version unless ``word`` says one.

    A plural or singular wins over short names, and these over kinds. Of several groups that with the highest priority wins; a group may be
    shortened (``hpa.autoscal``) where no group is called so.
    """
    for name, version, group in _readings(word):
        for called in (_by_name, _by_short_name):
            found = _matching(discovered, partial(called, name=name), version, group)
            if found:
                return found
    for name, version, group in _readings(word, lower=False):
        found = _matching(discovered, partial(_by_kind, name=name), version, group)
        if found:
            return found
    return ()


def told_apart(word: str, found: tuple[ApiResource, ...]) -> str:
    """What a person should know who wrote a short name of several resources, as kubectl warns; empty where it means one."""
    name = word.partition(".")[0].lower()
    if len(found) < 2 or _by_name(found[0], name) or not _by_short_name(found[0], name):
        return ""
    others = ", ".join(str(one.gvr.group_resource) for one in found[1:])
    meant = found[0].gvr.group_resource
    return f'short name "{word}" means {meant} and could also match lower priority resource {others}; write RESOURCE.GROUP to choose'


def _readings(word: str, *, lower: bool = True) -> Iterator[tuple[str, str | None, str | None]]:
    """Name, version and group (None: any) in the two ways a word can be read: RESOURCE.VERSION.GROUP, then RESOURCE.GROUP."""
    name, dot, rest = word.partition(".")
    name = name.lower() if lower else name
    version, second, group = rest.partition(".")
    if second:
        # With an empty group (``pods.v1.``) the version alone counts, as upstream's coercion leaves it.
        yield name, version, group or None
    yield name, None, rest if dot and rest else None


def _matching(
    discovered: Discovered, called: Callable[[ApiResource], bool], version: str | None, group: str | None
) -> tuple[ApiResource, ...]:
    candidates = [one for one in discovered.resources if called(one) and version in (None, one.gvr.version)]
    if group is not None:
        exact = [one for one in candidates if one.gvr.group == group]
        candidates = exact or [one for one in candidates if one.gvr.group.startswith(group)]
    first: dict[tuple[str, str], ApiResource] = {}
    for one in candidates:
        first.setdefault((one.gvr.group, one.gvr.resource), one)
    return tuple(first.values())


def _by_name(one: ApiResource, name: str) -> bool:
    return name in (one.gvr.resource, one.singular or one.gvk.kind.lower())


def _by_short_name(one: ApiResource, name: str) -> bool:
    return name in one.short_names


def _by_kind(one: ApiResource, name: str) -> bool:
    return one.gvk.kind == name
