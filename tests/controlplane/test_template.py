"""Template hashes: those of upstream's controllers, name-safe, blind to the order of keys and to their own label.

template_hashes.json holds Deployments' templates and the hashes that kube-controller-manager 1.36.3 gave their ReplicaSets.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kubeloop.controlplane.workloads.template import HASH_LABEL, same_template, template_hash, with_hash

TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}


RECORDED = json.loads((Path(__file__).parent / "template_hashes.json").read_text())


@pytest.mark.parametrize("recorded", [pytest.param(one, id=one["name"]) for one in RECORDED])
def test_the_hash_is_that_of_upstream(recorded: dict[str, Any]) -> None:
    assert template_hash(recorded["template"], recorded["collisionCount"]) == recorded["hash"]


def test_a_quantity_that_is_none_is_named() -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "much!"}}}]}}
    with pytest.raises(ValueError, match='"much!" is not a valid quantity'):
        template_hash(template)


def test_the_hash_does_not_depend_on_the_order_of_keys_nor_on_nulls() -> None:
    shuffled = {"spec": {"containers": [{"image": "x:1", "name": "c"}]}, "metadata": {"creationTimestamp": None, "labels": {"app": "web"}}}
    assert template_hash(TEMPLATE) == template_hash(shuffled)
    assert same_template(TEMPLATE, shuffled)


def test_the_hash_fits_into_a_name_and_changes_with_the_template_and_the_collision_count() -> None:
    changed = {**TEMPLATE, "spec": {"containers": [{"name": "c", "image": "x:2"}]}}
    hashes = [template_hash(TEMPLATE), template_hash(changed), template_hash(TEMPLATE, 1), template_hash(TEMPLATE, 2)]
    assert len(set(hashes)) == 4
    assert all(re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{1,10}", value) for value in hashes)


def test_a_template_with_its_hash_is_the_same_template() -> None:
    labelled = with_hash(TEMPLATE, "abc")
    assert labelled["metadata"]["labels"] == {"app": "web", HASH_LABEL: "abc"}
    assert same_template(labelled, TEMPLATE)
    assert "abc" not in str(TEMPLATE)
