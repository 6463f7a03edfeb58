"""The annotations of one Ingress after parsing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from examples.ingress_nginx.model.configuration import Affinity, Balance, ClientAuth
from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Policy
from kubeloop.api.core.v1 import ConfigMap, Secret


class Objects(Protocol):
    """Reads the objects to which annotations refer. None: the object does not exist, or the controller may not read it."""

    def secret(self, namespace: str, name: str) -> Secret | None: ...

    def config_map(self, namespace: str, name: str) -> ConfigMap | None: ...


@dataclass(frozen=True, slots=True)
class Problem:
    """An annotation that is not followed.

    ``denies``: requests get 503 rather than an answer without the protection that it asks for. ``missing``: an object to which it refers
    does not exist, or may not be read; the annotation is followed when it can be.
    """

    annotation: str
    message: str
    denies: bool = False
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Canary:
    """The share of the requests that a canary Ingress gets: by header, then by cookie, then by weight."""

    header: str = ""
    header_value: str = ""
    header_pattern: str = ""
    cookie: str = ""
    weight: int = 0
    weight_total: int = 100


@dataclass(frozen=True, slots=True)
class Annotations:
    """What the annotations of an Ingress say.

    Attributes:
        policy: For all of its paths; without ``https_redirect``, which also depends on certificates, and without ``error_backend``.
        rewrite_target: New path; ``$1`` to ``$9`` are groups of the location's expression.
        ssl_redirect, force_ssl_redirect: Redirect to https:// if the host has a certificate, or always. None: the ConfigMap's default.
        default_backend: Service of the namespace that answers for ``policy.intercept`` and for services without endpoints.
        secrets, config_maps: (namespace, name) of all objects that were read or looked for.
    """

    policy: Policy = DEFAULT_POLICY
    use_regex: bool = False
    rewrite_target: str = ""
    ssl_redirect: bool | None = None
    force_ssl_redirect: bool = False
    server_aliases: tuple[str, ...] = ()
    from_to_www: bool = False
    canary: Canary | None = None
    affinity: Affinity | None = None
    hash_by: tuple[str, ...] = ()
    balance: Balance = Balance.ROUND_ROBIN
    service_upstream: bool = False
    client_auth: ClientAuth | None = None
    default_backend: str = ""
    secrets: tuple[tuple[str, str], ...] = ()
    config_maps: tuple[tuple[str, str], ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @property
    def denied(self) -> bool:
        return any(problem.denies for problem in self.problems)
