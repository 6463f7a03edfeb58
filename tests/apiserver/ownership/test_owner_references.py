"""Duplicate owner references, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.ownership.conftest import Managers, config_map

pytestmark = pytest.mark.server


async def owner(managers: Managers, name: str) -> dict[str, Any]:
    """A reference to an owner that exists: an object whose owners are missing is garbage, and soon collected."""
    made = await managers("POST", "configmaps", config_map(name))
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made.body["metadata"]["uid"]}


async def test_the_second_of_two_equal_owner_references_is_dropped_with_a_warning(managers: Managers) -> None:
    first, second = sorted([await owner(managers, "x"), await owner(managers, "y")], key=lambda reference: str(reference["uid"]))
    made = await managers("POST", "configmaps?fieldManager=one", config_map("a", ownerReferences=[first, first, second]))
    assert made.body["metadata"]["ownerReferences"] == [first, second]
    assert made.owners["Update one"][-2:] == [f'.metadata.ownerReferences[uid="{one["uid"]}"]' for one in (first, second)]
    advice = "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests"
    observed = f"{advice}; duplicate UID(s) observed: {first['uid']}"
    assert made.warnings == (f".metadata.ownerReferences contains duplicate entries; {observed}",)
    updated = await managers("PUT", "configmaps/a", config_map("a", ownerReferences=[first, first]))
    assert (updated.warnings, updated.body["metadata"]["ownerReferences"]) == (made.warnings, [first])
    patched = await managers.merge("one", "configmaps/a", {"metadata": {"ownerReferences": [first, first]}})
    assert patched.warnings == (f".metadata.ownerReferences contains duplicate entries after mutating admission happens; {observed}",)


async def test_two_references_to_one_owner_that_differ_stay(managers: Managers) -> None:
    reference = await owner(managers, "x")
    both = [reference, {**reference, "controller": False}]
    made = await managers("POST", "configmaps", config_map("a", ownerReferences=both))
    assert (made.body["metadata"]["ownerReferences"], made.warnings) == (both, ())
