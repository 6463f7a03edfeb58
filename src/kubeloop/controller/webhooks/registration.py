"""Registers hooks with the API server: applies configurations, injects CA bundles, and restores either if another program changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubeloop.cache import InformerEvent, InformerFactory
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.controller.webhooks.configurations import Place
from kubeloop.controller.webhooks.hooks import Webhooks
from kubeloop.controller.webhooks.session import SESSION, bundle_patch, conversion_patch, definition_bundle_patch, marked_conversion_patch
from kubeloop.meta import KubeloopError, NotFound, Unstructured
from kubeloop.timing import Clock, TokenBucket
from kubeloop.transport import logger_with_context
from kubeloop.types import JSONObject

_LOG = logger_with_context("kubeloop.controller.webhooks")

Operation = dict[str, Any]

#: Field manager of the applied configurations.
FIELD_MANAGER: Final = "kubeloop-webhooks"
#: Seconds after which a failed patch is retried.
_AGAIN: Final = 10.0
#: Number of immediate repairs of an object, then seconds between repairs: another program may keep changing it as well.
_AT_ONCE: Final = 5
_REGISTRATION: Final = "admissionregistration.k8s.io/v1"
_KINDS: Final = {
    "validating": (_REGISTRATION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    "mutating": (_REGISTRATION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    "definitions": ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
}


@dataclass(frozen=True, slots=True)
class Inject:
    """Names of webhook configurations and CustomResourceDefinitions in which the server only sets the CA bundle.

    Other programs apply these objects (Helm, kustomize).

    Example:
        >>> Inject(validating=["foo-webhooks"], definitions=["foos.example.com"]).mutating
        ()
    """

    validating: Sequence[str] = ()
    mutating: Sequence[str] = ()
    definitions: Sequence[str] = ()

    @classmethod
    def of(cls, hooks: Webhooks, name: str) -> Inject:
        """Return all objects that ``hooks`` need: configurations called ``name``, and the definitions of kinds with converters.

        Raises:
            DeclarationError: No class of a kind with converters names its plural.
        """
        mutating = {hook.mutating for hook in hooks.hooks}
        return cls(
            validating=[name] if False in mutating else [],
            mutating=[name] if True in mutating else [],
            definitions=hooks.converters.definitions(),
        )


@dataclass(frozen=True, slots=True)
class Register:
    """Applies configurations for all hooks, and the conversion of all kinds that have converters, when the server starts.

    Args:
        name: Name of the configurations.
        place: Address of the webhook server for API servers, a ``Service`` or ``Url``. None: the server's own address, for a test on the
            same machine.
        temporary: Delete the configurations and restore the conversion of the kinds at the end; after a crash the next start with the same
            name does so. None: temporary if ``place`` is None, as that address ends with the server.

    Example:
        >>> from kubeloop.controller.webhooks import Service
        >>> Register("foo", Service("ops", "foo-webhooks")).is_temporary
        False
    """

    name: str
    place: Place | None = None
    temporary: bool | None = None

    @property
    def is_temporary(self) -> bool:
        return self.place is None if self.temporary is None else self.temporary


@dataclass(frozen=True, slots=True)
class RegistrationTarget:
    """One object to patch, and the configuration to apply if it is missing (None: wait for it)."""

    kind: type[Unstructured]
    name: str
    patch: Callable[[JSONObject, bytes], list[Operation]]
    manifest: Callable[[bytes], JSONObject] | None = None

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


def injected(inject: Inject) -> list[RegistrationTarget]:
    """Return the objects that ``inject`` names, as targets of a ``Registrar``."""
    found = [RegistrationTarget(_kind("validating"), name, bundle_patch) for name in inject.validating]
    found += [RegistrationTarget(_kind("mutating"), name, bundle_patch) for name in inject.mutating]
    return found + [RegistrationTarget(_kind("definitions"), name, definition_bundle_patch) for name in inject.definitions]


def registered(hooks: Webhooks, name: str, place: Place, *, temporary: bool = False) -> list[RegistrationTarget]:
    """Return the configurations and definitions of ``hooks``, which ``Register`` applies, as targets of a ``Registrar``.

    Args:
        hooks: The hooks.
        name: Name of the configurations.
        place: Address of the webhook server for API servers.
        temporary: Mark the objects with the session of this process, which removes them at its end.

    Raises:
        DeclarationError: the plural of a kind with converters is unknown; the name of its definition contains it.
    """
    found = []
    for which, mutating in (("mutating", True), ("validating", False)):
        if any(hook.mutating is mutating for hook in hooks.hooks):
            kind = _kind(which)
            found.append(RegistrationTarget(kind, name, bundle_patch, _configuration(hooks, name, place, kind, temporary)))
    for definition, conversion in hooks.definitions(place).items():
        found.append(RegistrationTarget(_kind("definitions"), definition, _conversion(conversion, name if temporary else "")))
    return found


def _kind(which: str) -> type[Unstructured]:
    api_version, kind, plural = _KINDS[which]
    return Unstructured.for_kind(api_version, kind, plural=plural, namespaced=False)


def _configuration(hooks: Webhooks, name: str, place: Place, kind: type[Unstructured], temporary: bool) -> Callable[[bytes], JSONObject]:
    def manifest(bundle: bytes) -> JSONObject:
        one = next(each for each in hooks.configurations(name, place, ca=bundle) if each.kind == kind.kind)
        if temporary:
            one.metadata.labels[SESSION] = name
        return {"apiVersion": kind.api_version, "kind": kind.kind, **one.to_dict()}

    return manifest


def _conversion(conversion: Callable[[bytes], JSONObject], session: str) -> Callable[[JSONObject, bytes], list[Operation]]:
    if session:
        return lambda definition, bundle: marked_conversion_patch(definition, conversion(bundle), session)
    return lambda definition, bundle: conversion_patch(definition, conversion(bundle))


class Registrar:
    """Applies webhook configurations and keeps their CA bundles equal to the server's.

    Guarantees
        Configurations are applied at start, or ``apply`` raises; a missing definition is patched when it is created.
        A bundle that another program changes, or a configuration that it removes, is restored; if repeated, every ten seconds.
        Objects without a difference are not written.

    Args:
        client: The client of the cluster.
        clock: Clock of delays.
        targets: The configurations and definitions.
        bundle: The CA bundle, PEM. Empty: none is written; API servers trust the certificate by other means.
    """

    def __init__(self, client: Client, clock: Clock, targets: Sequence[RegistrationTarget], bundle: bytes) -> None:
        self._client = client
        self._clock = clock
        self._targets = list(targets)
        self._bundle = bundle
        self._due: set[int] = set()
        self._heard = asyncio.Event()
        self._limits = [TokenBucket(1 / _AGAIN, _AT_ONCE, clock) for _ in self._targets]

    def use(self, bundle: bytes) -> None:
        """Set the CA bundle to inject from now on."""
        self._bundle = bundle
        self._mark(*range(len(self._targets)))

    async def apply(self) -> None:
        """Apply and patch all targets once; missing definitions are skipped.

        Raises:
            ApiError, TransportError: a request failed.
        """
        for target in self._targets:
            if target.manifest is not None:
                await self._apply(target, target.manifest)
                _LOG.debug("%s applied", target)
            else:
                await self._patch(target)

    async def keep(self) -> None:
        """Watch the targets and repair changed ones until cancelled."""
        async with InformerFactory(self._client, clock=self._clock, read_your_writes=False) as informers:
            for number, target in enumerate(self._targets):
                informer = informers.for_kind(target.kind, field_selector={"metadata.name": target.name}, namespace=ALL_NAMESPACES)
                mark = _marker(self._mark, number)
                informer.on_event(added=mark, updated=mark, deleted=mark, name=f"webhook registration of {target}")
            while True:
                await self._heard.wait()
                self._heard.clear()
                while self._due:
                    await self._settle(self._due.pop())

    def _mark(self, *numbers: int) -> None:
        self._due.update(numbers)
        self._heard.set()

    async def _settle(self, number: int) -> None:
        target = self._targets[number]
        try:
            await self._patch(target, self._limits[number])
        except _Contended:
            _LOG.warning("%s keeps being changed, probably by another writer; restoring it every %g s", target, _AGAIN)
            self._clock.call_later(_AGAIN, lambda: self._mark(number))
        except KubeloopError as error:
            _LOG.warning("cannot register the webhooks in %s: %s; retrying in %g s", target, error, _AGAIN)
            self._clock.call_later(_AGAIN, lambda: self._mark(number))

    async def _patch(self, target: RegistrationTarget, limit: TokenBucket | None = None) -> None:
        """Patch a target if it differs. Raises ``_Contended`` if ``limit`` does not allow a further write."""
        try:
            found = await self._client.get(target.kind, target.name)
        except NotFound:
            if target.manifest is not None:
                _take(limit)
                await self._apply(target, target.manifest)
                _LOG.info("%s was deleted; applied it again", target)
            else:
                _LOG.info("%s does not exist yet; the webhooks are registered when it is created", target)
            return
        patch = target.patch(found.to_dict(), self._bundle) if self._bundle or target.patch not in _OF_BUNDLES else []
        if patch:
            _take(limit)
            await self._client.patch(target.kind, target.name, patch, type="json")
            _LOG.info("%s trusts the webhooks' certificates", target)

    async def _apply(self, target: RegistrationTarget, manifest: Callable[[bytes], JSONObject]) -> None:
        await self._client.apply(target.kind.from_dict(manifest(self._bundle)), field_manager=FIELD_MANAGER, force=True)


_OF_BUNDLES: Final = (bundle_patch, definition_bundle_patch)


class _Contended(Exception):
    """Another program changes the object as often as it is repaired."""


def _take(limit: TokenBucket | None) -> None:
    if limit is not None and not limit.try_take():
        raise _Contended


def _marker(mark: Callable[[int], None], number: int) -> Callable[[InformerEvent[Any]], None]:
    return lambda _: mark(number)
