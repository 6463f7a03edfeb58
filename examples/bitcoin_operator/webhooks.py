"""The admission webhooks: they refuse updates that the schema cannot refuse, because they compare an object with its former state.

``config/webhooks/webhooks.yaml`` is the output of ``kubeloop generate webhooks examples.bitcoin_operator.webhooks:hooks``.
"""

from __future__ import annotations

from typing import Final

from examples.bitcoin_operator.types import BitcoinNetwork
from kubeloop.api.autoscaling.v1 import Scale
from kubeloop.controller.webhooks import AdmissionRequest, Denied, Webhooks
from kubeloop.meta import field_error

hooks = Webhooks()

#: Labels, annotations and finalizers change without a call: the garbage collector, for example, works while the operator does not run.
_SPEC_CHANGES: Final = {"spec-changes": "object.spec != oldObject.spec"}


@hooks.validating(
    BitcoinNetwork,
    name="update.bitcoinnetworks.bitcoincontroller.christianb93.github.com",
    operations=["UPDATE"],
    match_conditions=_SPEC_CHANGES,
)
async def check_update(network: BitcoinNetwork, request: AdmissionRequest[BitcoinNetwork]) -> None:
    """Refuse an update that ends the last node, or that changes ``spec.secret`` of a network with nodes.

    ``spec.nodes`` says whether a network has nodes. The status follows the pods with a delay, in which a changed Secret would pass, and
    then the answer would depend on the speed of the operator.
    """
    if request.old is None:
        return
    old, new = request.old.spec, network.spec
    errors = []
    if _ends_last_node(old.nodes, new.nodes):
        errors.append(_no_nodes("spec.nodes", network.metadata.name, new.nodes))
    if old.nodes > 0 and new.secret != old.secret:
        errors.append(field_error.invalid("spec.secret", new.secret, _secret_changed(old.secret, network.metadata.name)))
    if errors:
        raise Denied(errors=errors)


@hooks.validating(
    BitcoinNetwork,
    subresource="scale",
    body=Scale,
    name="scale.bitcoinnetworks.bitcoincontroller.christianb93.github.com",
    operations=["UPDATE"],
    match_conditions=_SPEC_CHANGES,
)
async def check_scale(scale: Scale, request: AdmissionRequest[Scale]) -> None:
    """Refuse ``kubectl scale`` and autoscalers that end the last node: API servers do not show ``check_update`` these writes."""
    if request.old is not None and _ends_last_node(request.old.spec.replicas, scale.spec.replicas):
        raise Denied(errors=[_no_nodes("spec.replicas", scale.metadata.name, scale.spec.replicas)])


def _ends_last_node(old: int, new: int) -> bool:
    return old > 0 and new < 1


def _no_nodes(field: str, name: str, nodes: int) -> field_error.FieldError:
    detail = f"a network cannot shrink below one node; to remove the network, delete it: kubectl delete bitcoinnetwork {name}"
    return field_error.invalid(field, nodes, detail)


def _secret_changed(old: str, name: str) -> str:
    text = "cannot be changed while the network has nodes, because daemons keep the credentials that they were started with; "
    other = f"change the data of Secret {old} (the operator replaces the pods), or " if old else ""
    return f"{text}{other}delete the network and create it again: kubectl delete bitcoinnetwork {name}"
