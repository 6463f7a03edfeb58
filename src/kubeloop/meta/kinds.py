"""Identifiers of kinds and resources: group, version, kind, resource. Plain tuples, cheap to hash and compare."""

from __future__ import annotations

from typing import NamedTuple


class GroupVersion(NamedTuple):
    """An API group and one of its versions; the core group is the empty string."""

    group: str
    version: str

    @classmethod
    def parse(cls, api_version: str) -> GroupVersion:
        """Read an ``apiVersion`` such as ``v1`` or ``apps/v1``.

        Raises:
            ValueError: more than one slash, or nothing at all.
        """
        group, slash, version = api_version.rpartition("/")
        if "/" in group or not version or (slash and not group):
            raise ValueError(f'apiVersion "{api_version}" is neither "VERSION" nor "GROUP/VERSION"')
        return cls(group, version)

    @property
    def api_version(self) -> str:
        """The text of the ``apiVersion`` field: ``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """The URL prefix of the group version, without a slash at the end: ``/api/v1``, ``/apis/apps/v1``."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def __str__(self) -> str:
        return self.api_version


class GroupKind(NamedTuple):
    """A kind in any version."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class GroupResource(NamedTuple):
    """A resource (plural, lower case) in any version; prints as in Kubernetes' messages: ``deployments.apps``."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class GroupVersionKind(NamedTuple):
    """The type of an object: its ``apiVersion`` and ``kind``."""

    group: str
    version: str
    kind: str

    @classmethod
    def of(cls, api_version: str, kind: str) -> GroupVersionKind:
        """Build it from the two fields of an object.

        Raises:
            ValueError: ``api_version`` is malformed.
        """
        return cls(*GroupVersion.parse(api_version), kind)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_version(self) -> GroupVersion:
        return GroupVersion(self.group, self.version)

    @property
    def group_kind(self) -> GroupKind:
        return GroupKind(self.group, self.kind)

    def __str__(self) -> str:
        return f"{self.api_version}, Kind={self.kind}"


class GroupVersionResource(NamedTuple):
    """A resource in one version, as a URL path names it: ``apps/v1``, ``deployments``."""

    group: str
    version: str
    resource: str

    @property
    def group_version(self) -> GroupVersion:
        return GroupVersion(self.group, self.version)

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.resource)

    def __str__(self) -> str:
        return f"{self.group_version.api_version}, Resource={self.resource}"
