"""What no audit log shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.apiserver.audit.record import redact
from kubeloop.endpoints.request_info import RequestInfo

SECRETS = RequestInfo("create", "", True, "", "v1", "secrets")
MAPS = RequestInfo("create", "", True, "", "v1", "configmaps")
TOKEN = RequestInfo("create", "", True, "", "v1", "serviceaccounts", "token")
REVIEW = RequestInfo("create", "", True, "authentication.k8s.io", "v1", "tokenreviews")
APPLIED = {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "a": "b"}}}


@pytest.mark.parametrize(
    ("info", "tree"),
    [
        pytest.param(SECRETS, {"data": {"k": "hunter2"}, "stringData": {"l": "hunter2"}}, id="a Secret's data"),
        pytest.param(SECRETS, {"data": "hunter2"}, id="data that is no map"),
        pytest.param(SECRETS, {"items": [{"data": {"k": "hunter2"}}]}, id="those of a list"),
        pytest.param(SECRETS, {"rows": [{"object": {"data": {"k": "hunter2"}}}]}, id="those in a Table"),
        pytest.param(SECRETS, [{"op": "add", "path": "/data/k", "value": "hunter2"}], id="values of a JSON patch"),
        pytest.param(SECRETS, [{"op": "add", "path": "", "value": {"data": {"k": "hunter2"}}}], id="a JSON patch of the whole"),
        pytest.param(SECRETS, "hunter2", id="a value that is no object"),
        pytest.param(SECRETS, APPLIED, id="what kubectl apply remembers"),
        pytest.param(TOKEN, {"status": {"token": "hunter2"}}, id="a token that is issued"),
        pytest.param(REVIEW, {"spec": {"token": "hunter2"}}, id="a token that is reviewed"),
    ],
)
def test_credentials_are_not_shown(info: RequestInfo, tree: Any) -> None:
    shown = json.dumps(redact(info, json.loads(json.dumps(tree))))
    assert "hunter2" not in shown
    assert "<redacted>" in shown


def test_keys_and_all_else_stay() -> None:
    tree = {"metadata": {"name": "a", "annotations": {"a": "b"}}, "type": "Opaque", "data": {"k": "x"}}
    assert redact(SECRETS, dict(tree)) == {**tree, "data": {"k": "<redacted>"}}
    assert redact(MAPS, {"data": {"k": "shown"}}) == {"data": {"k": "shown"}}
