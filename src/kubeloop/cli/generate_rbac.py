"""What ``kubeloop generate rbac`` does: roles of a program from what its controllers declare, checked or written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeloop.cli.application import controllers_at
from kubeloop.cli.generated import emit
from kubeloop.codec import write_yaml
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.names import dns1123_label, dns1123_subdomain

if TYPE_CHECKING:
    from kubeloop.controller.permissions import Permission

JSONObject = dict[str, Any]

_API = "rbac.authorization.k8s.io/v1"


def generate_rbac(
    targets: Iterable[str], name: str, namespace: str, out: Path | None, *, only_check: bool, lease: bool, sharding: bool, only_rules: bool
) -> None:
    """Write the roles of all controllers at ``targets``, or compare them with what is there.

    Raises:
        ConfigError: a target without controllers, a kind that only a server knows, a name that no object can have, or with ``only_check``
            a file that differs.
    """
    from kubeloop.controller.permissions import permissions_of, rules_of

    if only_check and out is None:
        raise ConfigError("--check compares with a file: name it with --out")
    for option, given, faults in (("--name", name, dns1123_subdomain(name)), ("--namespace", namespace, dns1123_label(namespace))):
        if faults:
            raise ConfigError(f'{option} "{given}": {faults[0]}')
    controllers = [controller for target in targets for controller in controllers_at(target)]
    permissions = permissions_of(controllers)
    text = (
        write_yaml({"rules": rules_of(permissions)})
        if only_rules
        else rbac_yaml(permissions, name, namespace, lease=lease, sharding=sharding)
    )
    emit(text, out, only_check=only_check, source="controllers")


def rbac_yaml(permissions: Iterable[Permission], name: str, namespace: str, *, lease: bool = True, sharding: bool = False) -> str:
    """A ServiceAccount, a ClusterRole with its binding, and for the election's Lease a Role with its own."""
    return write_yaml(*rbac_documents(permissions, name, namespace, lease=lease, sharding=sharding))


def rbac_documents(
    permissions: Iterable[Permission], name: str, namespace: str, *, lease: bool = True, sharding: bool = False
) -> list[JSONObject]:
    """The documents of ``rbac_yaml``."""
    from kubeloop.controller.permissions import lease_permissions, rules_of

    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    documents: list[JSONObject] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
        {"apiVersion": _API, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules_of(permissions)},
        _binding("ClusterRole", name, None, account),
    ]
    if lease or sharding:
        metadata = {"name": f"{name}-leader-election", "namespace": namespace}
        documents.append(
            {"apiVersion": _API, "kind": "Role", "metadata": metadata, "rules": rules_of(lease_permissions(sharding=sharding))}
        )
        documents.append(_binding("Role", metadata["name"], namespace, account))
    return documents


def _binding(kind: str, name: str, namespace: str | None, account: JSONObject) -> JSONObject:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    return {"apiVersion": _API, "kind": f"{kind}Binding", "metadata": metadata, "roleRef": reference, "subjects": [account]}
