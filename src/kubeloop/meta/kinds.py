"""Identifiers of kinds, resources and objects, and the validation of a custom kind's names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class GroupVersion(NamedTuple):
    """An API group and one of its versions; the core group is the empty string.

    >>> GroupVersion.parse("apps/v1")
    GroupVersion(group='apps', version='v1')
    >>> GroupVersion("", "v1").api_version
    'v1'
    """

    group: str
    version: str

    @classmethod
    def parse(cls, api_version: str) -> GroupVersion:
        """Read an ``apiVersion`` such as ``v1`` or ``apps/v1``.

        Raises:
            ValueError: More than one slash, or nothing at all.
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
    """A kind of an API group, in any version.

    >>> str(GroupVersionKind("apps", "v1", "Deployment").group_kind)
    'Deployment.apps'
    """

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class GroupResource(NamedTuple):
    """A resource (plural, lower case) in any version; prints as in Kubernetes' messages: ``deployments.apps``.

    >>> str(GroupResource("apps", "deployments"))
    'deployments.apps'
    """

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class GroupVersionKind(NamedTuple):
    """The type of an object: its ``apiVersion`` and ``kind``.

    >>> GroupVersionKind("apps", "v1", "Deployment").group_version.api_version
    'apps/v1'
    """

    group: str
    version: str
    kind: str

    @classmethod
    def from_api_version(cls, api_version: str, kind: str) -> GroupVersionKind:
        """Return the type for the fields ``apiVersion`` and ``kind`` of an object.

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
    """A resource in one version, as a URL path names it: ``apps/v1``, ``deployments``.

    >>> GroupVersionResource("apps", "v1", "deployments").resource
    'deployments'
    """

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


class ObjectKey(NamedTuple):
    """Identifies one object of a kind. One process may use two clusters, therefore it includes ``cluster``.

    >>> pod = Pod(metadata=ObjectMeta(namespace="shop", name="web-0"))
    >>> str(pod.object_key())
    'shop/web-0'

    ``namespace`` is empty for cluster-scoped objects. Prints as ``namespace/name``, or ``name`` alone.
    """

    cluster: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str, cluster: str = "") -> ObjectKey:
        """Parse ``namespace/name`` or ``name``.

        Raises:
            ValueError: More than one slash (client-go's SplitMetaNamespaceKey).
        """
        parts = text.split("/")
        if len(parts) > 2:
            raise ValueError(f'unexpected key format: "{text}" (wanted "name" or "namespace/name")')
        return cls(cluster, parts[0] if len(parts) == 2 else "", parts[-1])

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


# Validates the names of a custom kind at its ``@custom_resource`` declaration, by a server's rules for a CustomResourceDefinition.
#
# Source: k8s.io/apiextensions-apiserver pkg/apis/apiextensions/validation (names, group and versions).


_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_GROUP_PART = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
#: The form of versions of Kubernetes' own core group, the only group without a name.
_CORE_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_LONGEST_GROUP = 253
_EXAMPLE = 'such as "example.com/v1"'


def require_group_version(api_version: object) -> GroupVersion:
    """Return the group and version of a custom kind's ``api_version``.

    Raises:
        TypeError: The value is not a text, as after a decorator without arguments.
        ValueError: The group or the version is missing, or no server would accept it.
    """
    if not isinstance(api_version, str):
        raise TypeError(
            f'@custom_resource needs group, version and plural: @custom_resource("example.com/v1", plural="{_plural(api_version)}")'
        )
    group, slash, version = api_version.rpartition("/")
    if not slash and not _CORE_VERSION.fullmatch(version):
        fault = (
            f"there is no version in it: name group and version, {_EXAMPLE.replace('example.com', version) if '.' in version else _EXAMPLE}"
        )
        raise ValueError(f'api_version="{api_version}": {fault}')
    if slash and not version:
        raise ValueError(f'api_version="{api_version}": there is no version after the slash, {_EXAMPLE}')
    if slash and not group:
        raise ValueError(f'api_version="{api_version}": there is no group before the slash, {_EXAMPLE}')
    if len(group) > _LONGEST_GROUP or (slash and not all(_GROUP_PART.fullmatch(part) for part in group.split("."))):
        wanted = "lower case letters, digits, hyphens and dots, beginning and ending with a letter or digit"
        raise ValueError(f'api_version="{api_version}": the group must be {wanted}, {_EXAMPLE}')
    if not _LABEL.fullmatch(version):
        raise ValueError(
            f'api_version="{api_version}": the version must be lower case letters and digits, beginning with a letter, {_EXAMPLE}'
        )
    return GroupVersion(group, version)


def require_labels(description: str, names: Sequence[str]) -> None:
    """Check that names are DNS labels that begin with a letter, as the plural and short names of a resource must be.

    Raises:
        TypeError: ``names`` is a text or not a sequence of texts.
        ValueError: A name is no such label; the message begins with ``description``, such as ``plural``.
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        wanted = f'a tuple of names, such as ("{names}",)' if isinstance(names, str) else "text"
        raise TypeError(f"{description}={names!r}: must be {wanted}")
    for name in names:
        if not _LABEL.fullmatch(name):
            wanted = f'lower case letters, digits and hyphens, at most 63, beginning with a letter, such as "{_suggested(name)}"'
            raise ValueError(f'{description}="{name}": must be {wanted}')


def require_kind_name(kind: str) -> None:
    """Refuse a kind that no server would accept.

    Raises:
        ValueError: The kind is not letters, digits and hyphens, beginning with a letter, at most 63.
    """
    if not _LABEL.fullmatch(kind.lower()) or not kind.isascii():
        suggestion = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", kind)).lstrip("0123456789") or "Foo"
        raise ValueError(f'kind="{kind}": must be letters and digits, at most 63, beginning with a letter, such as "{suggestion[:63]}"')


def _plural(cls: object) -> str:
    return f"{getattr(cls, '__name__', 'foo').lower()}s"


def _suggested(name: str) -> str:
    return re.sub(r"[^-a-z0-9]+", "-", name.lower()).strip("-0123456789")[:63].strip("-") or "foos"
