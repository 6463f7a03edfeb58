"""Decides which names of a CustomResourceDefinition are accepted, and sets the conditions about them.

Pure functions: the caller passes the names of the other definitions in the group. Source: apiextensions-apiserver
status/naming_controller.go, establish/establishing_controller.go, apiapproval/apiapproval_controller.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

from kubeloop.apiserver.crd.conversion import ca_bundle_error
from kubeloop.apiserver.crd.definition import APPROVAL_ANNOTATION, accepted_names, condition, group_of, names_of, set_condition
from kubeloop.types import JSONObject


@dataclass(slots=True)
class NamesInUse:
    """Names that other definitions of the group use: ``resources`` (plural, singular, short) and ``kinds`` (kind, list kind)."""

    resources: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)


def names_in_use(definitions: Iterable[JSONObject]) -> NamesInUse:
    """Collect the accepted names of other definitions in the same group."""
    in_use = NamesInUse()
    for other in definitions:
        names = accepted_names(other)
        in_use.resources.update(filter(None, (names.get("plural"), names.get("singular"), *(names.get("shortNames") or ()))))
        in_use.kinds.update(filter(None, (names.get("kind"), names.get("listKind"))))
    return in_use


def update_names(crd: JSONObject, in_use: NamesInUse, now: datetime) -> JSONObject | None:
    """Return the definition with accepted names and conditions, or None if nothing changes. ``crd`` itself stays unchanged."""
    result = copy.deepcopy(crd)
    requested, accepted = names_of(crd), accepted_names(crd)
    new_names = dict(accepted)
    reason, message = _grant(requested, accepted, new_names, in_use)
    if "categories" in requested:
        new_names["categories"] = requested["categories"]
    else:
        new_names.pop("categories", None)
    result.setdefault("status", {})["acceptedNames"] = {"plural": "", "kind": "", **new_names}
    if reason:
        set_condition(result, "NamesAccepted", "False", reason, message, now)
    else:
        set_condition(result, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
    established = condition(crd, "Established")
    if established is None or established.get("status") != "True":
        if reason:
            set_condition(result, "Established", "False", "NotAccepted", "not all names are accepted", now)
        elif ca_bundle_error(crd):
            set_condition(result, "Established", "False", "InvalidCABundle", "The conversion webhook CABundle is invalid", now)
        else:
            set_condition(result, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted", now)
    if is_protected(group_of(crd)):
        _approve(result, now)
    return result if result != crd else None


def _grant(requested: JSONObject, accepted: JSONObject, new_names: JSONObject, in_use: NamesInUse) -> tuple[str, str]:
    """Add the names without a conflict to ``new_names``. Return reason and message of the last conflict, or empty texts for none."""
    reason = message = ""
    for name, title, used in (
        ("plural", "Plural", in_use.resources),
        ("singular", "Singular", in_use.resources),
        ("shortNames", "ShortNames", in_use.resources),
        ("kind", "Kind", in_use.kinds),
        ("listKind", "ListKind", in_use.kinds),
    ):
        requested_name, accepted_name = requested.get(name), accepted.get(name)
        if name == "shortNames":
            refused = [one for one in requested_name or [] if one in used and one not in (accepted_name or [])]
        else:
            refused = [requested_name] if requested_name != accepted_name and requested_name in used else []
        if refused:
            reason = f"{title}Conflict"
            texts = [f'"{one}" is already in use' for one in refused]
            message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        elif requested_name is not None:
            new_names[name] = requested_name
        else:
            new_names.pop(name, None)
    return reason, message


def is_protected(group: str) -> bool:
    """Return whether a group belongs to the Kubernetes community: its CRDs need an approval annotation (KEP-1111)."""
    return group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))


def approval(annotation: str) -> tuple[str, str]:
    """Return the state of the approval annotation (``missing``, ``bypassed``, ``approved`` or ``invalid``) and a message."""
    where = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not annotation:
        return "missing", f'protected groups must have approval annotation "{APPROVAL_ANNOTATION}", {where}'
    if annotation.startswith("unapproved"):
        return "bypassed", f'not approved: "{annotation}"'
    parts = urlsplit(annotation)
    if parts.scheme and parts.netloc:
        return "approved", f"approved in {annotation}"
    rule = 'with either a URL or a reason starting with "unapproved"'
    return "invalid", f'protected groups must have approval annotation "{APPROVAL_ANNOTATION}" {rule}, {where}'


def _approve(crd: JSONObject, now: datetime) -> None:
    state, message = approval((crd["metadata"].get("annotations") or {}).get(APPROVAL_ANNOTATION) or "")
    status, reason = {
        "missing": ("False", "MissingAnnotation"),
        "bypassed": ("False", "UnapprovedAnnotation"),
        "approved": ("True", "ApprovedAnnotation"),
        "invalid": ("False", "InvalidAnnotation"),
    }[state]
    set_condition(crd, "KubernetesAPIApprovalPolicyConformant", status, reason, message, now)
