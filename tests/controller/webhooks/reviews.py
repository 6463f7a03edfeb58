"""Reviews that tests send to admission hooks without a server."""

from __future__ import annotations

import base64
import json
from typing import Any

from kubeloop.controller.webhooks import Webhooks
from kubeloop.types import JSONObject


def review(obj: Any, *, version: str = "v1", kind: str = "Foo", operation: str = "CREATE", old: Any = None, **more: Any) -> bytes:
    named = {"group": "example.com", "version": "v1"}
    request = {
        "uid": "u-1",
        "kind": {**named, "kind": kind},
        "resource": {**named, "resource": "foos"},
        "name": "a",
        "namespace": "shop",
        "operation": operation,
        "userInfo": {"username": "ann", "groups": ["devs"]},
        "object": obj,
        "oldObject": old,
        **more,
    }
    return json.dumps({"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview", "request": request}).encode()


def foo(**spec: Any) -> JSONObject:
    return {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a", "namespace": "shop"}, "spec": spec}


async def asked(hooks: Webhooks, body: bytes, **more: Any) -> JSONObject:
    answer: JSONObject = json.loads((await hooks.answer(hooks.paths[0], body, **more)).body)
    response: JSONObject = answer["response"]
    return response


def patch_of(response: JSONObject) -> list[JSONObject]:
    return json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
