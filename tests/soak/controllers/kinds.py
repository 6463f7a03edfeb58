"""The kinds that the soak's controllers look after: a value that is wanted, and what was made of it."""

from __future__ import annotations

import msgspec

from kubeloop.meta import Model, Resource, custom_resource


class ThingSpec(Model):
    value: int | None = None


class ThingStatus(Model):
    """``generation``: of the state that was reconciled. ``by``, ``term``: the replica that did so, and its number of the lease."""

    value: int | None = None
    generation: int | None = None
    by: str = ""
    term: int | None = None


class Thing(Resource):
    """What the kinds have in common."""

    spec: ThingSpec = msgspec.field(default_factory=ThingSpec)
    status: ThingStatus = msgspec.field(default_factory=ThingStatus)


GROUP = "soak.kubeloop.dev"


@custom_resource("soak.kubeloop.dev/v1", plural="alphas")
class Alpha(Thing):
    pass


@custom_resource("soak.kubeloop.dev/v1", plural="betas")
class Beta(Thing):
    pass


@custom_resource("soak.kubeloop.dev/v1", plural="gammas")
class Gamma(Thing):
    pass


@custom_resource("soak.kubeloop.dev/v1", plural="deltas")
class Delta(Thing):
    pass


#: One for each controller.
KINDS: tuple[type[Thing], ...] = (Alpha, Beta, Gamma, Delta)
NAMESPACES = ("soak-a", "soak-b", "soak-c", "soak-d")
