"""The kind BitcoinNetwork: ``kubeloop generate crd`` makes its CustomResourceDefinition from these classes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kubeloop import Model, Resource, custom_resource
from kubeloop.declare import Column, ListMap, crd


class BitcoinNetworkSpec(Model):
    """The desired network."""

    nodes: Annotated[int, Meta(ge=0, le=100)]
    #: Secret with the credentials of the daemons. Empty: those of their image.
    secret: str = ""


class BitcoinNode(Model):
    """A daemon of the network. Fields without a default are always written, also ``ordinal: 0`` and ``ready: false``."""

    ordinal: int
    ready: bool
    ip: str
    node_name: str
    dns_name: str


class BitcoinNetworkStatus(Model):
    """The observed network."""

    nodes: Annotated[list[BitcoinNode], ListMap("ordinal")] = msgspec.field(default_factory=list)


@custom_resource("bitcoincontroller.christianb93.github.com/v1", plural="bitcoinnetworks")
@crd(storage=True, columns=[Column("Nodes", ".spec.nodes", "integer"), Column("Age", ".metadata.creationTimestamp", "date")])
class BitcoinNetwork(Resource):
    """A network of bitcoin daemons."""

    spec: BitcoinNetworkSpec
    status: BitcoinNetworkStatus = msgspec.field(default_factory=BitcoinNetworkStatus)
