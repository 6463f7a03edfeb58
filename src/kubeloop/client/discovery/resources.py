"""The resources that a server serves, and the lookup of a resource by the names that kubectl accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from kubeloop.meta.kinds import GroupVersion, GroupVersionKind, GroupVersionResource


class ApiResource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of one version, with the names of its subresources.

    >>> pods = await client.mapper.find("po")
    >>> pods.gvk.kind, pods.namespaced, "log" in pods.subresources
    ('Pod', True, True)
    """

    gvr: GroupVersionResource
    gvk: GroupVersionKind
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """A group version whose resources are unknown, and the reason.

    >>> Failure(GroupVersion("metrics.k8s.io", "v1beta1"), "503 ServiceUnavailable", again=True).again
    True

    ``again`` says that another request may succeed (429, 5xx, no response). ``absent`` says that the server does not serve it.
    """

    group_version: GroupVersion
    why: str
    again: bool = False
    absent: bool = False


class Discovered(msgspec.Struct, frozen=True):
    """All resources of a server: groups by the server's priority, the core group first; within a group the preferred version first.

    >>> discovered = await client.mapper.discovered()
    >>> [resource.gvr.resource for resource in discovered.preferred() if "deploy" in resource.short_names]
    ['deployments']
    >>> discovered.failed
    ()
    """

    resources: tuple[ApiResource, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def failed(self) -> tuple[GroupVersion, ...]:
        """The group versions whose resources are unknown because discovery failed for them; see ``failures`` for the reasons."""
        return tuple(one.group_version for one in self.failures)

    @property
    def fault(self) -> str:
        """A line that names the missing parts and the reasons; empty if all resources are known."""
        if not self.failures:
            return ""
        parts = "; ".join(f"{one.group_version}: {one.why}" for one in self.failures)
        return f"unable to retrieve the complete list of server APIs: {parts}"

    def failure(self, version: GroupVersion) -> Failure | None:
        return next((one for one in self.failures if one.group_version == version), None)

    def with_version(self, version: GroupVersion, result: tuple[ApiResource, ...] | Failure) -> Discovered:
        """Return a copy with the resources of a group version that had failed; it comes last within its group, as if not preferred."""
        others = tuple(one for one in self.failures if one.group_version != version)
        if isinstance(result, Failure):
            return Discovered(self.resources, (*others, result))
        places = [place for place, one in enumerate(self.resources) if one.gvr.group == version.group]
        place = places[-1] + 1 if places else len(self.resources)
        return Discovered((*self.resources[:place], *result, *self.resources[place:]), others)

    def preferred(self) -> tuple[ApiResource, ...]:
        """Return each resource once, in its preferred version: the first of its group that serves it."""
        seen: dict[tuple[str, str], ApiResource] = {}
        for one in self.resources:
            seen.setdefault((one.gvr.group, one.gvr.resource), one)
        return tuple(seen.values())

    def category(self, name: str) -> tuple[ApiResource, ...]:
        """Return the resources of a category (``all``), each in its preferred version."""
        return tuple(one for one in self.preferred() if name in one.categories)


# Finds a resource by a word as kubectl does: ``po``, ``Pod``, ``pods.v1.``, ``deploy.apps``, ``Deployment.v1.apps``.
#
# Source: apimachinery pkg/api/meta/restmapper.go, priority.go and pkg/runtime/schema (ParseResourceArg, ParseKindArg); client-go
# restmapper/shortcut.go.


def find_resources(discovered: Discovered, word: str) -> tuple[ApiResource, ...]:
    """Return the resources that ``word`` can mean, the best match first; each once, in its preferred version unless ``word`` names another.

    A plural or singular name takes precedence over short names, and these over kinds. Of several groups the one with the highest priority
    wins. A group may be shortened (``hpa.autoscal``) if no group has exactly that name.
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


def ambiguity_warning(word: str, matches: tuple[ApiResource, ...]) -> str:
    """Return kubectl's warning about a short name that several resources share, or an empty text if the name is unambiguous."""
    name = word.partition(".")[0].lower()
    if len(matches) < 2 or _by_name(matches[0], name) or not _by_short_name(matches[0], name):
        return ""
    others = ", ".join(str(one.gvr.group_resource) for one in matches[1:])
    meant = matches[0].gvr.group_resource
    return f'short name "{word}" means {meant} and could also match lower priority resource {others}; write RESOURCE.GROUP to choose'


def _readings(word: str, *, lower: bool = True) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield both interpretations of a word, RESOURCE.VERSION.GROUP and RESOURCE.GROUP, as name, version and group. None means any."""
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


def _by_name(resource: ApiResource, name: str) -> bool:
    return name in (resource.gvr.resource, resource.singular or resource.gvk.kind.lower())


def _by_short_name(resource: ApiResource, name: str) -> bool:
    return name in resource.short_names


def _by_kind(resource: ApiResource, name: str) -> bool:
    return resource.gvk.kind == name
