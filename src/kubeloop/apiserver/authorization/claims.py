"""Rights that a write of a ResourceClaim's status needs besides: ``resourceclaims/binding`` of who allocates, ``resourceclaims/driver`` of
drivers. Neither is a subresource that is served.

Source: k8s.io/kubernetes pkg/registry/resource/utils.go, feature DRAResourceClaimGranularStatusAuthorization.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.apiserver.authorization.impersonation import NODE_NAME, account_of
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.endpoints.access import Access, Authorizer, require
from kubeloop.meta.errors import ApiError
from kubeloop.meta.field_error import FieldError, forbidden
from kubeloop.types import JSONObject

_BINDING = "changing status.allocation or status.reservedFor"


def status_faults(authorizer: Authorizer, write: WriteRequest, obj: JSONObject, old: JSONObject) -> Iterator[FieldError]:
    """What is changed without the right to."""
    new, before = obj.get("status") or {}, old.get("status") or {}
    if any((new.get(name) or None) != (before.get(name) or None) for name in ("allocation", "reservedFor")):
        why = _refused(authorizer, write, write.verb, "binding", "", "")
        if why:
            yield forbidden(
                "status.allocation", f'{_BINDING} requires resource="resourceclaims/binding", verb="{write.verb}" permission: {why}'
            )
    allocation = new.get("allocation")
    if allocation is None:
        return  # what drivers told goes with it
    verbs = [f"arbitrary-node:{write.verb}"]
    if _is_there(write, allocation):
        verbs.insert(0, f"associated-node:{write.verb}")
    for driver in _drivers(new, before):
        refused = [_refused(authorizer, write, verb, "driver", write.namespace, driver) for verb in verbs]
        if all(refused):
            said = f'changing status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission'
            yield forbidden("status.devices", f"{said}: {refused[0]}")


def _refused(authorizer: Authorizer, write: WriteRequest, verb: str, subresource: str, namespace: str, name: str) -> str:
    gvr = write.resource.gvr
    try:
        require(authorizer, Access(write.user, verb, gvr.group, gvr.version, gvr.resource, subresource, namespace, name))
    except ApiError as refusal:
        return refusal.status.message
    return ""


def _drivers(new: JSONObject, old: JSONObject) -> list[str]:
    """Of devices that were added, changed or left out, sorted."""
    shown, before = ({_device(one): one for one in status.get("devices") or ()} for status in (new, old))
    return sorted({key[0] for key in {*shown, *before} if shown.get(key) != before.get(key)})


def _device(one: JSONObject) -> tuple[str, ...]:
    return tuple(one.get(name) or "" for name in ("driver", "pool", "device", "shareID"))


def _is_there(write: WriteRequest, allocation: JSONObject) -> bool:
    """Whether a service account's token is bound to the node that the claim was allocated on."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    fields = terms[0].get("matchFields") or [] if len(terms) == 1 and not terms[0].get("matchExpressions") else []
    if len(fields) != 1 or fields[0].get("key") != "metadata.name" or fields[0].get("operator") != "In" or len(fields[0]["values"]) != 1:
        return False
    return account_of(write.user.name) is not None and write.user.extra.get(NODE_NAME) == tuple(fields[0]["values"])
