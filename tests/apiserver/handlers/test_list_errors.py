"""What lists say first of several things that are wrong with their parameters; the same on both servers."""

from __future__ import annotations

import json

import pytest

from kubeloop.meta import ApiError
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

#: Of pages at revision 1, that begin at ../x and at x.
_OUT = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi94In0"
_GOOD = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0"
_NO_NUMBER = "strconv.ParseInt: parsing {}: invalid syntax"
_CONTINUE = "invalid continue token: continue key is not valid"


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        pytest.param({"limit": ""}, 400, _NO_NUMBER.format('""'), id="an empty number is no number"),
        pytest.param({"limit": "x", "labelSelector": "=x"}, 400, _NO_NUMBER.format('"x"'), id="numbers before selectors"),
        pytest.param({"timeoutSeconds": "y", "limit": "x"}, 400, _NO_NUMBER.format('"y"'), id="the timeout before the limit"),
        pytest.param(
            {"labelSelector": "app in (a", "sendInitialEvents": "true"},
            400,
            "unable to parse requirement: found '', expected: ',' or ')'",
            id="the grammar of selectors before options that do not go together",
        ),
        pytest.param(
            {"fieldSelector": "nosuch=1", "resourceVersionMatch": "Exact"},
            422,
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
            id="options that do not go together before fields that a kind does not have",
        ),
        pytest.param({"continue": "x"}, 400, f"{_CONTINUE}: illegal base64 data at input byte 0", id="one letter is no token"),
        pytest.param({"continue": "a=b"}, 400, f"{_CONTINUE}: illegal base64 data at input byte 1", id="a token has no padding"),
        pytest.param({"continue": _OUT}, 400, f"{_CONTINUE}: ../x", id="a token does not lead out of the list"),
        pytest.param(
            {"continue": _GOOD, "resourceVersion": "1.5"},
            400,
            "specifying resource version is not allowed when using continue",
            id="no version beside a token, not even a malformed one",
        ),
    ],
)
async def test_a_list_says_first(server: ServerUnderTest, namespace: str, query: dict[str, str], status: int, message: str) -> None:
    async with Transport(server.config) as transport:
        with pytest.raises(ApiError) as caught:
            await transport.request("GET", f"/api/v1/namespaces/{namespace}/configmaps", query=query)
    assert (caught.value.status.code, caught.value.status.message) == (status, message)


async def test_pods_are_found_by_the_old_name_of_their_node_field(server: ServerUnderTest, namespace: str) -> None:
    async with Transport(server.config) as transport:
        answer = await transport.request("GET", f"/api/v1/namespaces/{namespace}/pods", query={"fieldSelector": "spec.host=nobody"})
    assert answer.status == 200


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("/api/v1/nodes", "field label not supported: a{0}", id="as most kinds say"),
        pytest.param("/apis/batch/v1/jobs", 'field label "a{0}" not supported for Job', id="jobs name themselves"),
        pytest.param(
            "/apis/resource.k8s.io/v1/resourceslices",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: a{0}",
            id="resource slices name their version",
        ),
    ],
)
async def test_a_field_that_a_kind_does_not_offer_is_refused_in_its_words(server: ServerUnderTest, path: str, message: str) -> None:
    async with Transport(server.config) as transport:
        with pytest.raises(ApiError) as caught:
            await transport.request("GET", path, query={"fieldSelector": "a{0}=b"})
    assert (caught.value.status.code, caught.value.status.message) == (400, message)


async def test_the_rest_of_a_list_comes_whole_when_any_version_will_do(server: ServerUnderTest, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    async with Transport(server.config) as transport:
        for name in "abcd":
            await transport.request("POST", path, body=json.dumps({"metadata": {"name": name}}).encode())
        first = json.loads((await transport.request("GET", path, query={"limit": "1"})).body)
        query = {"limit": "1", "resourceVersion": "0", "continue": first["metadata"]["continue"]}
        rest = json.loads((await transport.request("GET", path, query=query)).body)
    assert [one["metadata"]["name"] for one in rest["items"]] == ["b", "c", "d"]
    assert "continue" not in rest["metadata"]
