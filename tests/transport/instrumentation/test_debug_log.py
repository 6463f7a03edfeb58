"""Debug records: more at each level, and never a secret."""

from __future__ import annotations

import logging

import pytest

from kubeloop.config import Credentials
from kubeloop.meta import TransportError
from kubeloop.transport import SentRequest, Transport
from kubeloop.transport.hooks import without_secrets
from kubeloop.transport.instrumentation.debug_log import BODIES, HEADERS, SHOWN
from tests.faults import DROP, FaultServer, Reply

POD = "/api/v1/namespaces/shop/pods"


async def logged(
    caplog: pytest.LogCaptureFixture,
    level: int,
    path: str = POD,
    answer: bytes = b'{"a": 1}',
    query: dict[str, str | int | bool | list[str] | None] | None = None,
    headers: dict[str, str] | None = None,
) -> str:
    caplog.set_level(level, "kubeloop.transport")
    reply = Reply(201, answer, {"Set-Cookie": "hidden-cookie"})
    async with FaultServer(reply) as server, Transport(server.config(credentials=Credentials(token="hidden-token"))) as transport:
        await transport.request("POST", path, body=b'{"b": 2}', query=query, headers=headers)
    text = "\n".join(record.getMessage() for record in caplog.records if record.name == "kubeloop.transport")
    assert "hidden" not in text
    return text.replace(str(server.port), "PORT")


async def test_at_info_nothing_is_said_of_a_request_that_went_well(caplog: pytest.LogCaptureFixture) -> None:
    assert await logged(caplog, logging.INFO) == ""


async def test_at_debug_each_request_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    text = await logged(caplog, logging.DEBUG)
    assert text.startswith(f"POST https://127.0.0.1:PORT{POD}: HTTP status 201 in ")
    assert text.endswith(" ms")
    assert text.count("\n") == 0


async def test_a_level_below_shows_headers_and_a_curl_command(caplog: pytest.LogCaptureFixture) -> None:
    text = await logged(caplog, HEADERS, headers={"X-It's": "a 'quoted' value"})
    assert "curl -v -XPOST -H 'Accept: application/json'" in text
    assert "'Authorization: Bearer <masked>'" in text
    assert "a '\"'\"'quoted'\"'\"' value" in text
    assert f"--data-binary @BODY https://127.0.0.1:PORT{POD}" in text
    assert "set-cookie: <masked>" in text
    assert "content-type: application/json" in text
    assert '"b"' not in text


async def test_the_level_below_that_shows_bodies_cut(caplog: pytest.LogCaptureFixture) -> None:
    text = await logged(caplog, BODIES, answer=b"x" * (SHOWN * 2))
    assert """request body: '{"b": 2}'""" in text
    assert f"answer body: '{'x' * SHOWN}' [{SHOWN * 2} bytes in all]" in text


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/api/v1/namespaces/shop/secrets", id="secrets"),
        pytest.param("/api/v1/namespaces/shop/secrets/one", id="one secret"),
        pytest.param("/api/v1/namespaces/shop/serviceaccounts/default/token", id="a token request"),
        pytest.param("/apis/authentication.k8s.io/v1/tokenreviews", id="a token review"),
        pytest.param("/api/v1/namespaces/shop/pods/web/proxy/login", id="what a pod is sent through the proxy"),
    ],
)
async def test_bodies_that_hold_secrets_are_never_shown(caplog: pytest.LogCaptureFixture, path: str) -> None:
    text = await logged(caplog, BODIES, path, answer=b'{"data": "hidden"}')
    assert "answer body: <18 bytes, not shown: they may hold secrets>" in text


async def test_commands_in_a_container_and_tokens_in_a_url_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    query: dict[str, str | int | bool | list[str] | None] = {"command": ["login", "hidden"], "token": "hidden", "stdin": True}
    text = await logged(caplog, BODIES, query=query)
    assert "?command=<masked>&command=<masked>&token=<masked>&stdin=true" in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        pytest.param("https://s/x?id_token=a&limit=5", "https://s/x?id_token=<masked>&limit=5", id="a token of any kind"),
        pytest.param("https://s/x?X-Amz-Signature=a#b", "https://s/x?X-Amz-Signature=<masked>#b", id="a signature"),
        pytest.param("https://s/x?api_key=a&clientSecret=b", "https://s/x?api_key=<masked>&clientSecret=<masked>", id="keys"),
        pytest.param("https://me:pw@s/x", "https://<masked>@s/x", id="who logs in by the address"),
        pytest.param("https://s/x?continue=abc&q=a@b", "https://s/x?continue=abc&q=a@b", id="a parameter that is no secret stays"),
    ],
)
def test_a_url_is_shown_without_its_secrets_also_in_a_hooks_request(url: str, shown: str) -> None:
    assert without_secrets(url) == shown
    assert repr(SentRequest("GET", url, "/x", "get", "", [])) == f"SentRequest(GET {shown}, attempt 0)"


async def test_protobuf_is_named_only(caplog: pytest.LogCaptureFixture) -> None:
    assert "answer body: <6 bytes of protobuf>" in await logged(caplog, BODIES, answer=b"k8s\x00\x01\x02")


async def test_a_try_that_is_not_answered_is_a_line_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kubeloop.transport")
    async with FaultServer(DROP) as server, Transport(server.config()) as transport:
        with pytest.raises(TransportError):
            await transport.request("PUT", POD, query={"token": "hidden"})
    line = next(record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG and record.name == "kubeloop.transport")
    assert f"{POD}?token=<masked>: IncompleteAnswerError after " in line
    assert "hidden" not in caplog.text
