"""The form of a response by the Accept header, and headers that no form satisfies."""

from __future__ import annotations

import pytest

from tests.apiserver.handlers.content.conftest import FORM, JSON, PROTOBUF, YAML, Wire

pytestmark = pytest.mark.server

ROUTER = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"
HANDLER = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        pytest.param("", JSON, id="nothing asked for is JSON"),
        pytest.param("*/*", JSON, id="anything is JSON"),
        pytest.param(YAML, YAML, id="YAML"),
        pytest.param(PROTOBUF, PROTOBUF, id="protobuf"),
        pytest.param(f"{JSON};q=0.5,{PROTOBUF}", PROTOBUF, id="the most wanted goes first"),
        pytest.param(f"*/*,{YAML};q=0.1", YAML, id="a type goes before a wildcard that is wanted more"),
        pytest.param(f"{JSON};q=0", JSON, id="a quality of zero does not exclude"),
        pytest.param(f"{JSON};charset=utf-8;profile=x", JSON, id="parameters that mean nothing are ignored"),
        pytest.param(f"application/cbor,{JSON}", JSON, id="CBOR is passed over"),
        pytest.param(f"{JSON};as=Nonsense,{YAML}", YAML, id="a form that does not exist is passed over"),
        pytest.param(f"{JSON};v=v1,{YAML}", YAML, id="a version without a form is passed over"),
        pytest.param(f"{PROTOBUF};stream=other,{YAML}", YAML, id="a stream of another schema is passed over"),
        pytest.param(f"{PROTOBUF};stream=watch", PROTOBUF, id="the type of a stream will do for an object"),
        pytest.param(f"{PROTOBUF}{FORM}PartialObjectMetadata", PROTOBUF, id="metadata in protobuf"),
        pytest.param(f"{YAML}{FORM}Table", YAML, id="a table in YAML"),
        pytest.param(f"{PROTOBUF}{FORM}Table,{JSON}", JSON, id="a table has no protobuf form"),
    ],
)
async def test_an_object_comes_in(wire: Wire, accept: str, content_type: str) -> None:
    await wire.create("a")
    answer = await wire("GET", "configmaps/a", **({"accept": accept} if accept else {}))
    assert (answer.status, answer.content_type) == (200, content_type)


@pytest.mark.parametrize(
    ("path", "accept", "message"),
    [
        pytest.param("configmaps/a", "text/html", ROUTER, id="another media type"),
        pytest.param("configmaps/a", "application/*", ROUTER, id="a range of types, before the handler sees it"),
        pytest.param("configmaps/a", "APPLICATION/JSON", ROUTER, id="a type in capitals"),
        pytest.param("configmaps/a", ",,", ROUTER, id="a header without any type"),
        pytest.param("configmaps", "text/html", f"{ROUTER}, {STREAMS}", id="of a list, which may be a watch"),
        pytest.param("configmaps/a", f"{JSON};as=Table;g=meta.k8s.io;v=v2", HANDLER, id="an unknown version of a form"),
        pytest.param("configmaps/a", f"{JSON};g=meta.k8s.io;v=v1", HANDLER, id="group and version without a form"),
        pytest.param("configmaps/a", f"{PROTOBUF}{FORM}Table", HANDLER, id="a table in protobuf"),
        pytest.param(
            "configmaps?watch=1", f"{YAML},{JSON}", f"only the following media types are accepted: {STREAMS}", id="YAML as a stream"
        ),
        pytest.param("/apis", "text/html", HANDLER, id="groups in HTML"),
        pytest.param("/apis/apps", f"{JSON}{FORM}Table", HANDLER, id="a group as a table"),
        pytest.param("/api/v1", "text/html", ROUTER, id="resources in HTML"),
        pytest.param("/version", YAML, "406: Not Acceptable\n\nAvailable representations: application/json", id="the version in YAML"),
    ],
)
async def test_not_acceptable_is(wire: Wire, path: str, accept: str, message: str) -> None:
    answer = await wire("GET", path, accept=accept)
    assert answer.status == 406
    if answer.content_type == JSON:
        assert answer.message == message
    else:
        assert answer.content_type == YAML


async def test_a_client_that_accepts_no_served_type_gets_an_indented_status(wire: Wire) -> None:
    answer = await wire("GET", "configmaps/nosuch", accept="text/html")
    assert answer.content_type == JSON
    assert answer.body.startswith(b'{\n  "kind": "Status",\n  "apiVersion": "v1",\n')


async def test_the_root_is_json_whatever_is_accepted(wire: Wire) -> None:
    answer = await wire("GET", "/", accept="text/html")
    assert (answer.status, answer.content_type) == (200, JSON)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        pytest.param(f"{JSON};as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", JSON, id="JSON"),
        pytest.param(f"{YAML};as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", YAML, id="YAML"),
        pytest.param(f"{PROTOBUF};as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", PROTOBUF, id="protobuf"),
        pytest.param(f"{JSON},*/*;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", JSON, id="JSON, after a plain clause"),
    ],
)
@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_aggregated_discovery_comes_in(wire: Wire, path: str, accept: str, content_type: str) -> None:
    answer = await wire("GET", path, accept=accept)
    assert answer.status == 200
    assert answer.content_type == f"{content_type};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    again = await wire("GET", path, accept=accept, if_none_match=answer.headers["etag"])
    assert (again.status, again.body) == (304, b"")
