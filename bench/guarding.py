"""A server as it is run for many users: tokens, an audit log, a policy on every ConfigMap, and a loader who has its rights from a role.

The same files, flags and objects for the embedded server and kube-apiserver.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from kubeloop.types import JSONObject

TOKEN = "loader-token"
#: Where the load client works; it may not make namespaces itself.
NAMESPACES = ("load-1", "load-8", "load-pods", "load-watch-1", "load-watch-100", "load-fill")
#: Roles, and as many bindings, of other users.
OTHERS = 400

_RBAC = "rbac.authorization.k8s.io"
_POLICIES = "admissionregistration.k8s.io"
_PATIENCE = 60.0

_AUDIT_POLICY: JSONObject = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Request", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True)
class Administrator:
    """Where a server is, and files that prove who may do everything there."""

    server: str
    ca: Path
    cert: Path
    key: Path


@dataclass(frozen=True)
class AccessControl:
    """Files of one server. ``flags``: the same for both servers; both have RBAC and Kubernetes' default plug-ins anyway."""

    folder: Path

    @property
    def flags(self) -> list[str]:
        return [
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--audit-policy-file={self.folder / 'audit.json'}",
            f"--audit-log-path={self.folder / 'audit.log'}",
        ]

    @property
    def token(self) -> Path:
        return self.folder / "token"

    @property
    def logged(self) -> int:
        """Bytes of the audit log."""
        return (self.folder / "audit.log").stat().st_size


def guard(folder: Path) -> AccessControl:
    files = {"tokens.csv": f'{TOKEN},loader,loader-uid,"loaders"\n', "audit.json": json.dumps(_AUDIT_POLICY), "token": TOKEN}
    for name, content in files.items():
        with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(content)
    return AccessControl(folder)


def furnish(administrator: Administrator) -> None:
    """Makes roles, bindings and the policy, and waits until all of it is in force.

    Raises:
        RuntimeError: the server refused something, or did not put it in force within a minute.
    """
    with _Connection(administrator) as connection:
        for path, tree in _objects():
            status, answer = connection.post(path, tree)
            if status != http.client.CREATED:
                raise RuntimeError(f"{path}: {status} {answer[:300]!r}")
        _await(connection)


def _await(connection: _Connection) -> None:
    """The loader may create what the policy allows, and nothing else."""
    path = "/api/v1/namespaces/load-fill/configmaps?dryRun=All"
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        refused, why = connection.post(path, _config_map({"refused": "yes"}), TOKEN)
        allowed, _ = connection.post(path, _config_map({"key": "value"}), TOKEN)
        if refused == http.client.UNPROCESSABLE_ENTITY and b"ValidatingAdmissionPolicy" in why and allowed == http.client.CREATED:
            status, _ = connection.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}, TOKEN)
            if status != http.client.FORBIDDEN:
                raise RuntimeError(f"the loader may do what it has no right to: {status}")
            return
        time.sleep(0.1)
    raise RuntimeError(f"roles and policy are not in force after {_PATIENCE:g} s")


def _objects() -> Iterator[tuple[str, JSONObject]]:
    for name in NAMESPACES:
        yield "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    roles, version = f"/apis/{_RBAC}/v1", f"{_RBAC}/v1"
    for number in range(OTHERS):
        rules = [{"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["get", "list", "watch", "create"]}]
        name = f"other-{number:03d}"
        yield f"{roles}/clusterroles", {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
        namespace = "" if number % 4 == 0 else NAMESPACES[number % len(NAMESPACES)]
        yield _binding(name, name, {"kind": "User", "name": f"user-{number:03d}", "apiGroup": _RBAC}, namespace)
    rules = [{"apiGroups": [""], "resources": ["configmaps", "pods", "serviceaccounts"], "verbs": ["*"]}]
    yield f"{roles}/clusterroles", {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "loading"}, "rules": rules}
    for namespace in NAMESPACES:
        yield _binding("loaders", "loading", {"kind": "Group", "name": "loaders", "apiGroup": _RBAC}, namespace)
    policies, version = f"/apis/{_POLICIES}/v1", f"{_POLICIES}/v1"
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE", "DELETE"]}
            ]
        },
        "validations": [
            {"expression": "request.operation == 'DELETE' || !has(object.data) || object.data.all(key, size(object.data[key]) < 65536)"},
            {"expression": "request.operation == 'DELETE' || !has(object.data) || !('refused' in object.data)", "message": "refused"},
        ],
    }
    policy = {"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "small-values"}, "spec": spec}
    yield f"{policies}/validatingadmissionpolicies", policy
    spec = {"policyName": "small-values", "validationActions": ["Deny"]}
    bound = {"apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "small-values"}, "spec": spec}
    yield f"{policies}/validatingadmissionpolicybindings", bound


def _binding(name: str, role: str, subject: JSONObject, namespace: str) -> tuple[str, JSONObject]:
    """Without a namespace for all of them."""
    kind, where = ("RoleBinding", f"namespaces/{namespace}/rolebindings") if namespace else ("ClusterRoleBinding", "clusterrolebindings")
    of = {"kind": "ClusterRole", "name": role, "apiGroup": _RBAC}
    metadata = {"name": name}
    return f"/apis/{_RBAC}/v1/{where}", {
        "apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "subjects": [subject], "roleRef": of,
    }  # fmt: skip


def _config_map(data: dict[str, str]) -> JSONObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tried"}, "data": data}


class _Connection:
    """Kept connections of the administrator, and of a user with a token; no client under test sends the measured requests."""

    def __init__(self, who: Administrator) -> None:
        address = urlsplit(who.server)
        certified, plain = (ssl.create_default_context(cafile=str(who.ca)) for _ in range(2))
        certified.load_cert_chain(who.cert, who.key)
        self._connections = [
            http.client.HTTPSConnection(address.hostname or "", address.port, timeout=_PATIENCE, context=context)
            for context in (certified, plain)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._connections:
            one.close()

    def post(self, path: str, tree: JSONObject, token: str = "") -> tuple[int, bytes]:
        connection = self._connections[bool(token)]
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        connection.request("POST", path, json.dumps(tree).encode(), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
