"""Pages of lists: neither their number, nor their length, nor their continue tokens tell of hidden objects."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.meta import ObjectMeta
from tests.attacks.conftest import Thief
from tests.attacks.proxy.conftest import HIDDEN, Proxied
from tests.servers import ServerUnderTest

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_MAPS = "/api/v1/namespaces/{home}/configmaps"


def _names(document: dict[str, Any]) -> list[str]:
    if document["kind"] == "Table":
        return [row["object"]["metadata"]["name"] for row in document["rows"]]
    return [item["metadata"]["name"] for item in document["items"]]


async def _walked(thief: Thief, query: str, accept: str) -> list[dict[str, Any]]:
    """The pages of a list, one after the other."""
    pages, token = [], ""
    while True:
        path = f"{_MAPS}?{query}" + (f"&continue={quote(token)}" if token else "")
        answered = await thief.ask("GET", path, {"Accept": accept})
        assert answered.status == 200, answered.body[:300]
        assert HIDDEN not in answered.body
        assert not answered.has_gold
        pages.append(json.loads(answered.body))
        token = pages[-1]["metadata"].get("continue", "")
        assert "remainingItemCount" not in pages[-1]["metadata"]
        readable = base64.b64decode(token + "===")
        assert b"m-secret" not in readable, readable
        assert b"m-hidden" not in readable, readable
        if not token:
            return pages


@pytest.fixture(scope="module")
def crowd(server: ServerUnderTest, proxied: Proxied) -> Iterator[Thief]:
    """Eleven hidden ConfigMaps in a row, and one at the end."""
    names = (*(f"m-hidden-{number}" for number in range(11)), "zz-m-hidden")
    for name in names:
        metadata = ObjectMeta(name=name, namespace=proxied.thief.home, labels={"tier": "back"})
        server.administrator.create(ConfigMap(metadata=metadata))
    yield proxied.thief
    for name in names:
        server.administrator.delete(ConfigMap, name, namespace=proxied.thief.home)


@pytest.mark.parametrize("accept", ["application/json", _TABLE, _METADATA])
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 500])
async def test_pages_are_as_if_hidden_objects_did_not_exist(crowd: Thief, accept: str, limit: int) -> None:
    pages = await _walked(crowd, f"limit={limit}", accept)
    names = [_names(page) for page in pages]
    visible = ["a-map", "changed", "z-map"]
    assert names == [visible[at : at + limit] for at in range(0, 3, limit)]
