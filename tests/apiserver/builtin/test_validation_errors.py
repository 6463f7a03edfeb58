"""What built-in kinds refuse and in which words: a table that a Kubernetes 1.36 API server answered.

``refusals_*.json`` holds, by path and sentence, a body and the causes of its refusal; none when it is accepted.
``{namespace}`` in paths and bodies is the test's namespace.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeloop.meta import Invalid
from kubeloop.transport import Transport
from tests.apiserver.builtin.write_pipeline import create
from tests.servers import ServerUnderTest

Case = tuple[str, dict[str, Any], list[tuple[str, str, str]]]


def _read() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for file in sorted(Path(__file__).parent.glob("refusals_*.json")):
        for path, cases in json.loads(file.read_text()).items():
            for name, case in cases.items():
                found[name] = path, case["body"], sorted((field, message, reason) for field, message, reason in case["causes"])
    return found


_CASES = _read()


def _place(path: str, body: dict[str, Any], namespace: str) -> tuple[str, bytes]:
    return path.replace("{namespace}", namespace), json.dumps(body).replace("{namespace}", namespace).encode()


@pytest.mark.parametrize("name", _CASES)
def test_refuses(name: str) -> None:
    path, body, expected = _CASES[name]
    where, what = _place(path, body, "n")
    assert sorted(create(where, json.loads(what)).causes) == expected


@pytest.mark.server
@pytest.mark.parametrize("name", _CASES)
async def test_refuses_on_the_wire(name: str, server: ServerUnderTest, namespace: str) -> None:
    path, body, expected = _CASES[name]
    where, what = _place(path, body, namespace)
    async with Transport(server.config) as transport:
        answer = transport.request("POST", where, query={"dryRun": "All"}, body=what)
        if not expected:
            assert (await answer).status == 201
            return
        with pytest.raises(Invalid) as caught:
            await answer
    details = caught.value.status.details
    assert details is not None
    assert sorted((cause.field, cause.message, cause.reason) for cause in details.causes) == expected
