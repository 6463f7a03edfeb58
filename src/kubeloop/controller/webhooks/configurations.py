"""Webhook configurations for API servers, from the declarations: admission, and the conversion of CustomResourceDefinitions.

Source: admissionregistration.k8s.io/v1 and apiextensions.k8s.io/v1.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from kubeloop.api.admissionregistration.v1 import (
    MatchCondition,
    MutatingWebhook,
    MutatingWebhookConfiguration,
    RuleWithOperations,
    ServiceReference,
    ValidatingWebhook,
    ValidatingWebhookConfiguration,
    WebhookClientConfig,
)
from kubeloop.controller.webhooks.conversion import CONVERT_PATH
from kubeloop.controller.webhooks.declared import DEFAULT_TIMEOUT, AdmissionHook
from kubeloop.meta import ConfigError, ObjectMeta
from kubeloop.types import JSONObject

Configuration: TypeAlias = MutatingWebhookConfiguration | ValidatingWebhookConfiguration
W = TypeVar("W", MutatingWebhook, ValidatingWebhook)


@dataclass(frozen=True, slots=True)
class Service:
    """The Service in front of the webhook server. The server's certificate must be for ``NAME.NAMESPACE.svc``.

    Example:
        >>> Service("ops", "foo-webhooks").dns_names
        ('foo-webhooks.ops.svc', ...)
    """

    namespace: str
    name: str
    port: int = 443

    @property
    def dns_names(self) -> tuple[str, ...]:
        """The DNS names of the Service: the name that API servers use comes first."""
        full = f"{self.name}.{self.namespace}"
        return (f"{full}.svc", full, f"{full}.svc.cluster.local", self.name)


@dataclass(frozen=True, slots=True)
class Url:
    """Address of a webhook server outside of the cluster: ``https://HOST:PORT``, without a path.

    Raises:
        ConfigError: the address is not https, or has a path.

    Example:
        >>> Url("https://webhooks.example.com:9443").base
        'https://webhooks.example.com:9443'
    """

    base: str

    def __post_init__(self) -> None:
        if not self.base.startswith("https://") or "/" in self.base.removeprefix("https://").rstrip("/"):
            raise ConfigError(f'"{self.base}" is not an address of a webhook server; it is https://HOST:PORT (each hook has its path)')


Place: TypeAlias = Service | Url


def configurations(hooks: Sequence[AdmissionHook], name: str, place: Place, ca: bytes) -> list[Configuration]:
    """Return the webhook configurations for hooks, as ``Webhooks.configurations`` does.

    Args:
        hooks: The hooks.
        name: Name of the configurations.
        place: Address of the webhook server for API servers.
        ca: CA bundle, PEM. Empty: no bundle is set.
    """
    found: list[Configuration] = []
    mutating = [_mutating(hook, place, ca) for hook in hooks if hook.mutating]
    validating = [_filled(ValidatingWebhook(), hook, place, ca) for hook in hooks if not hook.mutating]
    if mutating:
        found.append(MutatingWebhookConfiguration(metadata=ObjectMeta(name=name), webhooks=mutating))
    if validating:
        found.append(ValidatingWebhookConfiguration(metadata=ObjectMeta(name=name), webhooks=validating))
    return found


def conversion(place: Place, ca: bytes) -> JSONObject:
    """Return ``spec.conversion`` of a CustomResourceDefinition whose versions the webhook server at ``place`` converts."""
    client: JSONObject = {"caBundle": base64.b64encode(ca).decode()} if ca else {}
    if isinstance(place, Service):
        client["service"] = {"namespace": place.namespace, "name": place.name, "port": place.port, "path": CONVERT_PATH}
    else:
        client["url"] = place.base.rstrip("/") + CONVERT_PATH
    return {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1", "v1beta1"]}}


def _mutating(hook: AdmissionHook, place: Place, ca: bytes) -> MutatingWebhook:
    webhook = _filled(MutatingWebhook(), hook, place, ca)
    webhook.reinvocation_policy = hook.options.get("reinvocation_policy")
    return webhook


def _filled(webhook: W, hook: AdmissionHook, place: Place, ca: bytes) -> W:
    options = hook.options
    webhook.name = hook.name
    webhook.admission_review_versions = ["v1", "v1beta1"]
    webhook.client_config = _client_config(hook.path, place, ca)
    webhook.rules = [_rule(hook)]
    webhook.side_effects = options.get("side_effects", "None")
    webhook.failure_policy = options.get("failure_policy", "Fail")
    webhook.match_policy = options.get("match_policy", "Equivalent")
    webhook.timeout_seconds = options.get("timeout_seconds", DEFAULT_TIMEOUT)
    webhook.namespace_selector = options.get("namespace_selector")
    webhook.object_selector = options.get("object_selector")
    conditions = options.get("match_conditions") or {}
    webhook.match_conditions = [MatchCondition(name=name, expression=text) for name, text in conditions.items()]
    return webhook


def _client_config(path: str, place: Place, ca: bytes) -> WebhookClientConfig:
    bundle = ca or None
    if isinstance(place, Service):
        service = ServiceReference(namespace=place.namespace, name=place.name, path=path, port=place.port)
        return WebhookClientConfig(service=service, ca_bundle=bundle)
    return WebhookClientConfig(url=place.base.rstrip("/") + path, ca_bundle=bundle)


def _rule(hook: AdmissionHook) -> RuleWithOperations:
    gvr = hook.gvr
    resource = f"{gvr.resource}/{hook.subresource}" if hook.subresource else gvr.resource
    return RuleWithOperations(
        api_groups=[gvr.group],
        api_versions=[gvr.version],
        resources=[resource],
        operations=list(hook.operations),
        scope=hook.options.get("scope", "*"),
    )
