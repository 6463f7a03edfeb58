"""Owner references that are there twice, on both servers."""

from __future__ import annotations

import pytest

from tests.apiserver.ownership.conftest import Managers, config_map

pytestmark = pytest.mark.server

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "00000000-0000-0000-0000-000000000001"}
OTHER = {**OWNER, "uid": "00000000-0000-0000-0000-000000000002"}


async def test_the_second_of_two_equal_owner_references_is_dropped_with_a_warning(managers: Managers) -> None:
    made = await managers("POST", "configmaps?fieldManager=one", config_map("a", ownerReferences=[OWNER, OWNER, OTHER]))
    assert made.body["metadata"]["ownerReferences"] == [OWNER, OTHER]
    assert made.owners["Update one"][-2:] == [f'.metadata.ownerReferences[uid="{one["uid"]}"]' for one in (OWNER, OTHER)]
    advice = "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests"
    observed = f"{advice}; duplicate UID(s) observed: {OWNER['uid']}"
    assert made.warnings == (f".metadata.ownerReferences contains duplicate entries; {observed}",)
    updated = await managers("PUT", "configmaps/a", config_map("a", ownerReferences=[OWNER, OWNER]))
    assert (updated.warnings, updated.body["metadata"]["ownerReferences"]) == (made.warnings, [OWNER])
    patched = await managers.merge("one", "configmaps/a", {"metadata": {"ownerReferences": [OWNER, OWNER]}})
    assert patched.warnings == (f".metadata.ownerReferences contains duplicate entries after mutating admission happens; {observed}",)


async def test_two_references_to_one_owner_that_differ_stay(managers: Managers) -> None:
    both = [OWNER, {**OWNER, "name": "y"}]
    made = await managers("POST", "configmaps", config_map("a", ownerReferences=both))
    assert (made.body["metadata"]["ownerReferences"], made.warnings) == (both, ())
