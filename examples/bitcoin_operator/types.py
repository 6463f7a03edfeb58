"""The kind BitcoinNetwork, as its users write it.

``config/default/crd.yaml`` is the output of ``kubeloop generate crd examples.bitcoin_operator.types``.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kubeloop import Model, Resource, custom_resource
from kubeloop.api.meta.v1 import Condition
from kubeloop.declare import Column, ListMap, Scale, crd, rule

#: The StatefulSet controller labels pods with the name of a revision: NAME-sts, a hyphen and 10 characters; a label has at most 63.
LONGEST_NAME = 48


class BitcoinNetworkSpec(Model):
    """The desired network."""

    nodes: Annotated[int, Meta(ge=0, le=100)]
    #: Secret with BC_RPC_USER and BC_RPC_PASSWORD. Empty: the daemons have the credentials of their image.
    secret: Annotated[str, Meta(max_length=253, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")] = ""


class BitcoinNode(Model):
    """A daemon of the network. Fields without a default are always written, also ``ordinal: 0`` and ``ready: false``."""

    ordinal: int
    ready: bool
    ip: str
    #: Name of the pod, as in the original; not that of a Kubernetes Node.
    node_name: str
    dns_name: str


class BitcoinNetworkStatus(Model):
    """The observed network."""

    nodes: Annotated[list[BitcoinNode], ListMap("ordinal")] = msgspec.field(default_factory=list)
    #: None before the first reconcile, so that 0 is written too.
    replicas: int | None = None
    ready_nodes: int | None = None
    selector: str = ""
    conditions: Annotated[list[Condition], ListMap("type")] = msgspec.field(default_factory=list)


@rule(
    f"self.metadata.name.size() <= {LONGEST_NAME} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    message=f"metadata.name must have at most {LONGEST_NAME} lower case letters, digits and hyphens, and begin with a letter: "
    "the names of a Service and of pods begin with it",
)
@custom_resource("bitcoincontroller.christianb93.github.com/v1", plural="bitcoinnetworks")
@crd(
    storage=True,
    scale=Scale(spec_replicas=".spec.nodes", status_replicas=".status.replicas", label_selector=".status.selector"),
    columns=[
        Column("Nodes", ".spec.nodes", "integer"),
        Column("Ready", ".status.readyNodes", "integer"),
        Column("Meshed", '.status.conditions[?(@.type=="Meshed")].status'),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Reason", '.status.conditions[?(@.type=="Meshed")].reason', priority=1),
    ],
)
class BitcoinNetwork(Resource):
    """A network of bitcoin daemons: every ready daemon lists every other one as an added node."""

    spec: BitcoinNetworkSpec
    status: BitcoinNetworkStatus = msgspec.field(default_factory=BitcoinNetworkStatus)
