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

#: Aggregation itself: this server's own, whatever an APIService says.
OWN_GROUP: Final = "apiregistration.k8s.io"
#: What the label of APIServices that the server keeps by itself says: until it starts anew, or always.
MANAGED: Final = "kube-aggregator.kubernetes.io/automanaged"
_HTTPS: Final = 443
_OPENAPI: Final = "/openapi/v3"


@dataclass(frozen=True, slots=True)
class Registered:
    """``service`` None: this server serves the version by itself. ``ca`` empty: the system's authorities vouch for the service.

    ``managed``: the server made the APIService by itself.
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
        """What it serves: this path and all below. The core group's APIService has all of it, whatever its version."""
        return "/api" if self.name == "v1." else f"/apis/{self.group}/{self.version}"

    @property
    def document(self) -> str:
        """The path of its discovery document."""
        return f"/api/{self.version}" if self.name == "v1." else self.path

    @property
    def server_name(self) -> str:
        """What the service's certificate must be valid for."""
        return f"{self.service.name}.{self.service.namespace}.svc" if self.service is not None else ""


def registered(obj: JSONObject) -> Registered:
    """Read a stored APIService, which was valid when it was written."""
    spec = obj["spec"]
    reference = spec.get("service")
    service = None
    if reference is not None:
        service = ServiceName(reference.get("namespace", ""), reference.get("name", ""), reference.get("port") or _HTTPS)
    return Registered(
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
    return (obj.get("status") or {}).get("conditions") or []


@dataclass(slots=True)
class Table:
    """All APIServices by name, and what is known of what those behind other servers serve. ``revision`` grows with every change."""

    services: dict[str, Registered] = field(default_factory=dict)
    #: By name, an APIVersionDiscovery.
    discovered: dict[str, JSONObject] = field(default_factory=dict)
    #: By name, the entry of OpenAPI version 3's index, and the document of version 2.
    openapi: dict[str, JSONObject] = field(default_factory=dict)
    swagger: dict[str, JSONObject] = field(default_factory=dict)
    revision: int = 0

    def changed(self) -> None:
        self.revision += 1

    def forget(self, name: str) -> None:
        """What is known of what a service serves."""
        for kept in (self.discovered, self.openapi, self.swagger):
            kept.pop(name, None)
        self.changed()

    def remote(self) -> list[Registered]:
        return [one for one in self.services.values() if is_remote(one)]

    def of(self, group: str, version: str) -> Registered | None:
        return self.services.get(f"{version}.{group}")

    def behind(self, path: str) -> Registered | None:
        """Whose service a path leads to, that of an OpenAPI document included; None: this server answers it."""
        if path.startswith(_OPENAPI):
            found = self.behind(path.removeprefix(_OPENAPI))
            return found if found is not None and found.name in self.openapi and path == _OPENAPI + found.path else None
        parts = path.split("/", 4)
        if len(parts) >= 4 and parts[1] == "apis":
            found = self.services.get(f"{parts[3]}.{parts[2]}")
        elif len(parts) >= 2 and parts[1] == "api":
            found = self.services.get("v1.")
        else:
            return None
        return found if found is not None and is_remote(found) else None


def is_remote(service: Registered) -> bool:
    return service.service is not None and service.group != OWN_GROUP


# The condition Available. Source: kube-aggregator pkg/apis/apiregistration/v1/helper (SetAPIServiceCondition).


@dataclass(frozen=True, slots=True)
class Finding:
    """What the condition Available says. ``again``: nothing need change for it to change, so that it is looked at again soon."""

    status: str
    reason: str
    message: str
    again: bool = False

    @property
    def passed(self) -> bool:
        return self.status == "True"


LOCAL: Final = Finding("True", "Local", "Local APIServices are always available")
PASSED: Final = Finding("True", "Passed", "all checks passed")


def with_condition(obj: JSONObject, finding: Finding, now: str) -> JSONObject:
    """A copy of ``obj`` whose condition Available says ``finding``; its time changes with its status only. ``now``: RFC 3339."""
    changed = copy.deepcopy(obj)
    conditions = conditions_of(changed)
    told = {"status": finding.status, "reason": finding.reason, "message": finding.message}
    known = next((one for one in conditions if one.get("type") == "Available"), None)
    if known is None:
        conditions.append({"type": "Available", "lastTransitionTime": now, **told})
    else:
        if known.get("status") != finding.status:
            known["lastTransitionTime"] = now
        known.update(told)
    changed["status"] = {**(changed.get("status") or {}), "conditions": conditions}
    return changed
