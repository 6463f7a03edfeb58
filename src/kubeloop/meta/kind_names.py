"""Validates the names of a custom kind at its ``@custom_resource`` declaration, by a server's rules for a CustomResourceDefinition.

Source: k8s.io/apiextensions-apiserver pkg/apis/apiextensions/validation (names, group and versions).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubeloop.meta.kinds import GroupVersion

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_GROUP_PART = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
#: The form of versions of Kubernetes' own core group, the only group without a name.
_CORE_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_LONGEST_GROUP = 253
_EXAMPLE = 'such as "example.com/v1"'


def group_version(api_version: object) -> GroupVersion:
    """Return group and version of an ``api_version``.

    Raises:
        TypeError: the value is not a text, as after a decorator without arguments.
        ValueError: the group or the version is missing, or no server would accept it.
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
    """Refuse names that cannot be part of a URL.

    Raises:
        TypeError: ``names`` is a text or not a sequence of texts.
        ValueError: a name contains other characters than lower case letters, digits and hyphens.
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
        ValueError: the kind is not letters, digits and hyphens, beginning with a letter, at most 63.
    """
    if not _LABEL.fullmatch(kind.lower()) or not kind.isascii():
        suggestion = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", kind)).lstrip("0123456789") or "Foo"
        raise ValueError(f'kind="{kind}": must be letters and digits, at most 63, beginning with a letter, such as "{suggestion[:63]}"')


def _plural(cls: object) -> str:
    return f"{getattr(cls, '__name__', 'foo').lower()}s"


def _suggested(name: str) -> str:
    return re.sub(r"[^-a-z0-9]+", "-", name.lower()).strip("-0123456789")[:63].strip("-") or "foos"
