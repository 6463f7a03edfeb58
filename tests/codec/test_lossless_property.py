"""One random edit on the typed object and on a plain tree must give equal bodies: nothing else may change, nothing may be lost."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import kubeloop.api
from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import Pod, Service
from kubeloop.codec import decode, encode, to_dict
from kubeloop.meta import Resource
from tests.codec.random_edits import Edit, Plant, document
from tests.effort import effort


def builtin_kinds() -> list[type[Resource]]:
    """Those of one version each that the models know."""
    found: dict[str, type[Resource]] = {}
    for module in pkgutil.walk_packages(kubeloop.api.__path__, "kubeloop.api."):
        for one in vars(importlib.import_module(module.name)).values():
            if isinstance(one, type) and issubclass(one, Resource) and one is not Resource and one.kind:
                found[f"{one.api_version} {one.kind}"] = one
    return [found[name] for name in sorted(found)]


KINDS = builtin_kinds()


def one_edit(cls: type[Resource], rng: random.Random) -> None:
    tree = {"apiVersion": cls.api_version, "kind": cls.kind, **document(cls, rng, depth=6)}
    source = json.dumps(tree)
    obj = decode(cls, source.encode())
    assert to_dict(obj) == tree, "an unchanged object"
    Edit(rng).struct(obj, tree)
    note(f"read: {source}")
    note(f"plain edit: {json.dumps(tree)}")
    note(f"typed edit: {encode(obj).decode()}")
    assert json.loads(encode(obj)) == tree


@pytest.mark.parametrize("cls", [Pod, Deployment, Service, Plant])
@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=effort(short=50, long=400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_one_edit_typed_and_on_a_plain_tree_gives_equal_bodies(cls: type[Resource], rng: random.Random) -> None:
    one_edit(cls, rng)


@given(cls=st.sampled_from(KINDS), rng=st.randoms(use_true_random=False))
@settings(max_examples=effort(short=120, long=800), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_of_any_built_in_kind_too(cls: type[Resource], rng: random.Random) -> None:
    one_edit(cls, rng)
