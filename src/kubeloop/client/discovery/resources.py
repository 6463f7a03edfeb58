"""What a server serves, as discovery found it."""

from __future__ import annotations

import msgspec

from kubeloop.meta.kinds import GroupVersion, GroupVersionKind, GroupVersionResource


class ApiResource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of one version, with the names of its subresources."""

    gvr: GroupVersionResource
    gvk: GroupVersionKind
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """A group version about which nothing was learnt, and why.

    ``again``: asking once more may help (429, 5xx, no answer). ``absent``: the server says that it serves nothing there.
    """

    group_version: GroupVersion
    why: str
    again: bool = False
    absent: bool = False


class Discovered(msgspec.Struct, frozen=True):
    """All resources: groups in the server's order of priority, the core group first; preferred versions first within each."""

    resources: tuple[ApiResource, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def failed(self) -> tuple[GroupVersion, ...]:
        """Group versions whose server did not answer."""
        return tuple(one.group_version for one in self.failures)

    @property
    def fault(self) -> str:
        """Which part is missing and why, in a line; empty when all is known."""
        if not self.failures:
            return ""
        parts = "; ".join(f"{one.group_version}: {one.why}" for one in self.failures)
        return f"unable to retrieve the complete list of server APIs: {parts}"

    def failure(self, version: GroupVersion) -> Failure | None:
        return next((one for one in self.failures if one.group_version == version), None)

    def with_version(self, version: GroupVersion, found: tuple[ApiResource, ...] | Failure) -> Discovered:
        """The same, with news of a group version that had failed; it comes last within its group, as if not preferred."""
        others = tuple(one for one in self.failures if one.group_version != version)
        if isinstance(found, Failure):
            return Discovered(self.resources, (*others, found))
        places = [place for place, one in enumerate(self.resources) if one.gvr.group == version.group]
        place = places[-1] + 1 if places else len(self.resources)
        return Discovered((*self.resources[:place], *found, *self.resources[place:]), others)

    def preferred(self) -> tuple[ApiResource, ...]:
        """Each resource once, in the version that its group prefers among those that have it."""
        seen: dict[tuple[str, str], ApiResource] = {}
        for one in self.resources:
            seen.setdefault((one.gvr.group, one.gvr.resource), one)
        return tuple(seen.values())

    def category(self, name: str) -> tuple[ApiResource, ...]:
        """The resources of a category (``all``), each in its preferred version."""
        return tuple(one for one in self.preferred() if name in one.categories)
