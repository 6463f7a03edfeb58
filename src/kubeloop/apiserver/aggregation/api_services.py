"""Registered APIServices: parsed, indexed by group and version, and their condition Available.

Source: kube-aggregator pkg/apis/apiregistration/v1 (types, helpers).
"""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass, field
from typing import Final

from kubeloop.apiserver.outbound.target import ServiceName
from kubeloop.types import JSONObject

#: The API group of APIServices. This server always serves it itself.
OWN_GROUP: Final = "apiregistration.k8s.io"
#: Label of the APIServices that the server manages. Its value is ``true`` (always) or ``onstart`` (until the next start).
MANAGED: Final = "kube-aggregator.kubernetes.io/automanaged"
_HTTPS: Final = 443
_OPENAPI: Final = "/openapi/v3"


@dataclass(frozen=True, slots=True)
class RegisteredService:
    """The parsed specification of an APIService.

    Attributes:
        name: Name of the APIService, ``VERSION.GROUP``.
        group: API group.
        version: API version.
        group_priority: ``spec.groupPriorityMinimum``.
        version_priority: ``spec.versionPriority``.
        service: The Service of the extension server; None: this server serves the version itself.
        ca: CA bundle, PEM; empty: the authorities of the system.
        insecure: Do not verify the certificate.
        available: The condition Available is true.
        managed: The server created the APIService.
    """

    name: str
    group: str
    version: str
    group_priority: int
    version_priority: int
    service: ServiceName | None = None
    ca: bytes = b""
    insecure: bool = False
    available: bool = False
    managed: bool = False

    @property
    def path(self) -> str:
        """The path prefix of the API. The APIService of the core group covers all of ``/api``, regardless of its version."""
        return "/api" if self.name == "v1." else f"/apis/{self.group}/{self.version}"

    @property
    def document(self) -> str:
        """Path of the discovery document of the version."""
        return f"/api/{self.version}" if self.name == "v1." else self.path

    @property
    def server_name(self) -> str:
        """The host name that the certificate of the service must have, or an empty text if there is no service."""
        return f"{self.service.name}.{self.service.namespace}.svc" if self.service is not None else ""


def parse_api_service(obj: JSONObject) -> RegisteredService:
    """Parse a stored APIService. It was validated when it was written."""
    spec = obj["spec"]
    reference = spec.get("service")
    service = None
    if reference is not None:
        service = ServiceName(reference.get("namespace", ""), reference.get("name", ""), reference.get("port") or _HTTPS)
    return RegisteredService(
        name=obj["metadata"]["name"],
        group=spec.get("group", ""),
        version=spec.get("version", ""),
        group_priority=spec.get("groupPriorityMinimum", 0),
        version_priority=spec.get("versionPriority", 0),
        service=service,
        ca=base64.b64decode(spec.get("caBundle") or ""),
        insecure=bool(spec.get("insecureSkipTLSVerify")),
        available=any(one.get("type") == "Available" and one.get("status") == "True" for one in conditions_of(obj)),
        managed=MANAGED in (obj["metadata"].get("labels") or {}),
    )


def conditions_of(obj: JSONObject) -> list[JSONObject]:
    """Return the status conditions of an object, or an empty list if there are none."""
    return (obj.get("status") or {}).get("conditions") or []


@dataclass(slots=True)
class ApiServiceTable:
    """A table of all APIServices by name, with the documents of the extension servers. ``revision`` increases with every change."""

    services: dict[str, RegisteredService] = field(default_factory=dict)
    #: Name of the APIService -> its APIVersionDiscovery.
    discovered: dict[str, JSONObject] = field(default_factory=dict)
    #: Name of the APIService -> its entry in the OpenAPI 3 index, and its OpenAPI 2 document.
    openapi: dict[str, JSONObject] = field(default_factory=dict)
    swagger: dict[str, JSONObject] = field(default_factory=dict)
    revision: int = 0

    def changed(self) -> None:
        """Increase ``revision`` after a change."""
        self.revision += 1

    def forget(self, name: str) -> None:
        """Remove the documents of an extension server."""
        for stored in (self.discovered, self.openapi, self.swagger):
            stored.pop(name, None)
        self.changed()

    def remote(self) -> list[RegisteredService]:
        """Return the APIServices of extension servers."""
        return [one for one in self.services.values() if is_remote(one)]

    def get(self, group: str, version: str) -> RegisteredService | None:
        """Return the APIService of a group and version, or None."""
        return self.services.get(f"{version}.{group}")

    def find_by_path(self, path: str) -> RegisteredService | None:
        """Return the APIService whose extension server serves a path or the path's OpenAPI document, or None if this server serves it."""
        if path.startswith(_OPENAPI):
            result = self.find_by_path(path.removeprefix(_OPENAPI))
            return result if result is not None and result.name in self.openapi and path == _OPENAPI + result.path else None
        parts = path.split("/", 4)
        if len(parts) >= 4 and parts[1] == "apis":
            result = self.services.get(f"{parts[3]}.{parts[2]}")
        elif len(parts) >= 2 and parts[1] == "api":
            result = self.services.get("v1.")
        else:
            return None
        return result if result is not None and is_remote(result) else None


def is_remote(service: RegisteredService) -> bool:
    """Return whether an extension server serves the API."""
    return service.service is not None and service.group != OWN_GROUP


# The condition Available. Source: kube-aggregator pkg/apis/apiregistration/v1/helper (SetAPIServiceCondition).


@dataclass(frozen=True, slots=True)
class Availability:
    """The state of an extension server, as the condition Available shows it.

    ``again`` is True if the state may change without a change of an object, so that the server must be probed again soon.
    """

    status: str
    reason: str
    message: str
    again: bool = False

    @property
    def passed(self) -> bool:
        """Whether the condition is True."""
        return self.status == "True"


LOCAL: Final = Availability("True", "Local", "Local APIServices are always available")
PASSED: Final = Availability("True", "Passed", "all checks passed")


def with_available_condition(obj: JSONObject, availability: Availability, now: str) -> JSONObject:
    """Return a copy of ``obj`` with the condition Available set. Its ``lastTransitionTime`` changes only with its status.

    ``now`` is in RFC 3339.
    """
    changed = copy.deepcopy(obj)
    conditions = conditions_of(changed)
    current = {"status": availability.status, "reason": availability.reason, "message": availability.message}
    known = next((one for one in conditions if one.get("type") == "Available"), None)
    if known is None:
        conditions.append({"type": "Available", "lastTransitionTime": now, **current})
    else:
        if known.get("status") != availability.status:
            known["lastTransitionTime"] = now
        known.update(current)
    changed["status"] = {**(changed.get("status") or {}), "conditions": conditions}
    return changed
