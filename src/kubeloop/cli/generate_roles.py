"""What ``kubeloop generate roles`` does: ClusterRoles to administrate, edit and view kinds, aggregated to Kubernetes' own roles.

Source: Kubernetes documentation, "Using RBAC Authorization", aggregated and user-facing roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from kubeloop.cli.generated import emit
from kubeloop.codec import write_yaml
from kubeloop.codegen.crd import classes_at, definitions_of
from kubeloop.meta import Resource
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.names import dns1123_subdomain

JSONObject = dict[str, Any]

_READ: Final = ["get", "list", "watch"]
_WRITE: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
#: Role to the verbs on the objects, and the roles of Kubernetes that have them too. Who administrates a kind may do everything with it,
#: also what an API server knows no verb for yet.
_ROLES: Final[dict[str, tuple[list[str], tuple[str, ...]]]] = {
    "admin": (["*"], ("admin",)),
    "editor": (_WRITE, ("admin", "edit")),
    "viewer": (_READ, ("admin", "edit", "view")),
}


def generate_roles(targets: Sequence[str], name: str, out: Path | None, *, only_check: bool) -> None:
    """Write the roles for the users of all kinds at ``targets``, or compare them with the file.

    Raises:
        ConfigError: A target without kinds, a name that no object can have, or with ``only_check`` a file that differs.
    """
    if faults := dns1123_subdomain(name):
        raise ConfigError(f'--name "{name}": {faults[0]}')
    kinds = [kind for target in targets for kind in classes_at(target)]
    emit(write_yaml(*role_documents(kinds, name)), out, only_check=only_check, source="kinds")


def role_documents(kinds: Iterable[type[Resource]], name: str) -> list[JSONObject]:
    """Return three ClusterRoles for each kind, called ``NAME-KIND-admin``, ``-editor`` and ``-viewer``."""
    found: list[JSONObject] = []
    for definition in definitions_of(dict.fromkeys(kinds)):
        spec = definition.document["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        has_status = any("status" in version.get("subresources", {}) for version in spec["versions"])
        # Kubernetes' roles of users hold in a namespace: what lives outside of namespaces is for bindings to the role itself.
        aggregated = spec["scope"] == "Namespaced"
        for role, (verbs, targets) in _ROLES.items():
            rules: list[JSONObject] = [{"apiGroups": [group], "resources": [plural], "verbs": list(verbs)}]
            if has_status:
                rules.append({"apiGroups": [group], "resources": [f"{plural}/status"], "verbs": ["get"]})
            metadata: JSONObject = {"name": f"{name}-{spec['names']['singular']}-{role}"}
            if aggregated:
                metadata["labels"] = {f"rbac.authorization.k8s.io/aggregate-to-{target}": "true" for target in targets}
            found.append({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules})
    return found
