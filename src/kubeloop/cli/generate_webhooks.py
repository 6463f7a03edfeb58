"""What ``kubeloop generate webhooks`` does: configurations of admission webhooks from their declarations, and conversion of definitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kubeloop.cli.application import named
from kubeloop.cli.generated import emit
from kubeloop.codec import write_yaml
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.names import dns1035_label, dns1123_label
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.controller.webhooks import Service, Webhooks


def generate_webhooks(target: str, service: str, name: str, out: Path | None, *, only_check: bool) -> None:
    """Write the configurations of the admission webhooks at ``target``, or compare them with the file.

    Args:
        target: MODULE:NAME of a ``Webhooks``.
        service: NAMESPACE/NAME of the Service in front of them.
        name: Name of the configurations. Empty: that of the Service.
        out: The file. None: standard output.
        only_check: Compare, and write nothing.

    Raises:
        ConfigError: There is no ``Webhooks``, it has no admission webhook, the Service has no such name, or the file differs.
    """
    place = service_of(service)
    found = webhooks_at(target).configurations(name or place.name, place)
    if not found:
        raise ConfigError(f"{target}: declares no admission webhook; use its decorators mutating and validating")
    documents = [{"apiVersion": one.api_version, "kind": one.kind, **one.to_dict()} for one in found]
    emit(write_yaml(*documents), out, only_check=only_check, source="webhooks")


def conversions_of(target: str, service: str) -> dict[str, JSONObject]:
    """Return ``spec.conversion`` by name of CustomResourceDefinition, for the kinds with converters at ``target``.

    Raises:
        ConfigError: There is no ``Webhooks``, or the Service has no such name.
    """
    return {name: conversion(b"") for name, conversion in webhooks_at(target).definitions(service_of(service)).items()}


def webhooks_at(target: str) -> Webhooks:
    """Return the ``Webhooks`` that stands at MODULE:NAME.

    Raises:
        ConfigError: There is something else, or nothing.
    """
    from kubeloop.controller.webhooks import Webhooks

    wanted = "a Webhooks, in which webhooks are declared"
    found = named(target, wanted)
    if not isinstance(found, Webhooks):
        raise ConfigError(f"{target}: {found!r} is not {wanted}")
    return found


def service_of(text: str) -> Service:
    """Return the Service that NAMESPACE/NAME names.

    Raises:
        ConfigError: The text has another form, or a part of it is no name.
    """
    from kubeloop.controller.webhooks import Service

    namespace, slash, name = text.partition("/")
    faults = dns1123_label(namespace) or dns1035_label(name)
    if not slash or faults:
        raise ConfigError(f'--service "{text}": must be NAMESPACE/NAME' + (f"; {faults[0]}" if slash and faults else ""))
    return Service(namespace, name)
