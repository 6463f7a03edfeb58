"""Bad input over the wire: the Status that kube-apiserver gives, never a traceback, nothing half-written. Texts are recorded ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apiserver.conftest import CONFIGMAPS, JSON_PATCH, MERGE, PARTIAL, PARTIAL_LIST, PROTOBUF, STRATEGIC, Api

UNRECOGNIZED = "the object provided is unrecognized (must be of type ConfigMap): "
NONE_OF_OURS = "406: Not Acceptable\n\nAvailable representations: "
OURS = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
UNREADABLE = f"{UNRECOGNIZED}couldn't get version/kind; json parse error: "


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            "{bad json", f"{UNREADABLE}invalid character 'b' looking for beginning of object key string ({{bad json)", id="no JSON"
        ),
        pytest.param("", f"{UNREADABLE}unexpected end of JSON input (<empty>)", id="nothing at all"),
        pytest.param("{} x", f"{UNREADABLE}invalid character 'x' after top-level value ({{}} x)", id="two values"),
        pytest.param(
            {"apiVersion": "a/b/c"},
            f'{UNRECOGNIZED}unexpected GroupVersion string: a/b/c ({{"apiVersion": "a/b/c"}})',
            id="a malformed apiVersion",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}},
            'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion',
            id="another kind",
        ),
        pytest.param(
            {"apiVersion": "v2", "kind": "ConfigMap"},
            'ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "v2" in scheme '
            '"pkg/runtime/scheme.go:111"',
            id="a version that does not exist",
        ),
        pytest.param(
            {"metadata": {"name": "x", "labels": ["a"]}},
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal array into Go struct field '
            "ObjectMeta.metadata.labels of type map[string]string",
            id="a field of the wrong type",
        ),
        pytest.param(
            {"metadata": {"name": "x", "namespace": "other"}},
            "the namespace of the provided object does not match the namespace sent on the request",
            id="another namespace than the path's",
        ),
    ],
)
async def test_a_body_that_cannot_be_read_is_a_bad_request(api: Api, body: Any, message: str) -> None:
    answer = await api("POST", CONFIGMAPS, body)
    assert (answer.status, answer.body["reason"], answer.message) == (400, "BadRequest", message)
    assert (await api("GET", CONFIGMAPS)).body["items"] == []


async def test_a_body_over_three_mebibytes_is_too_large(api: Api) -> None:
    answer = await api("POST", CONFIGMAPS, {"metadata": {"name": "big"}, "data": {"k": "x" * 3_300_000}})
    assert (answer.status, answer.message) == (413, "Request entity too large: limit is 3145728")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("POST", f"{CONFIGMAPS}/named", 405, id="POST to an object"),
        pytest.param("PUT", CONFIGMAPS, 405, id="PUT to a collection"),
        pytest.param("PATCH", CONFIGMAPS, 405, id="PATCH of a collection"),
        pytest.param("OPTIONS", CONFIGMAPS, 405, id="OPTIONS"),
        pytest.param("HEAD", f"{CONFIGMAPS}/a", 405, id="HEAD"),
        pytest.param("PUT", "/api/v1/watch/pods", 405, id="PUT to the old path of a watch"),
        pytest.param("DELETE", "/api/v1/namespaces", 405, id="DELETE of all namespaces"),
        pytest.param("DELETE", "/api/v1/configmaps", 405, id="DELETE across namespaces"),
        pytest.param("POST", "/api/v1/configmaps", 405, id="POST without a namespace"),
        pytest.param("POST", "/version", 405, id="POST to the version"),
        pytest.param("GET", "/api/v1/nosuch", 404, id="an unknown resource"),
        pytest.param("GET", "/api/v1/namespaces/default/nosuch", 404, id="an unknown resource in a namespace"),
        pytest.param("GET", "/apis/apps/v1beta1/deployments", 404, id="an unknown version of a known group"),
        pytest.param("GET", f"{CONFIGMAPS}/a/b/c", 404, id="too many segments"),
        pytest.param("GET", "/api/v1/configmaps/a", 404, id="a namespaced object without a namespace"),
        pytest.param("GET", "/api/v1/namespaces/default/nodes", 404, id="a cluster-scoped resource in a namespace"),
        pytest.param("GET", f"{CONFIGMAPS}/a/status", 404, id="a subresource that the kind does not have"),
    ],
)
async def test_paths_and_methods_that_do_not_exist_get_a_status(api: Api, method: str, path: str, status: int) -> None:
    answer = await api(method, path, {} if method in ("POST", "PUT", "PATCH") else None, content=MERGE if method == "PATCH" else "")
    assert answer.status == status
    if method != "HEAD":
        assert (answer.body["kind"], answer.body["code"], answer.body["details"]) == ("Status", status, {})


@pytest.mark.parametrize("path", ["/nosuch", "/apis/nosuch.example.com/v1/foos"])
async def test_unknown_paths_get_a_plain_page(api: Api, path: str) -> None:
    answer = await api("GET", path)
    assert (answer.status, answer.text) == (404, "404 page not found\n")


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        pytest.param("timeoutSeconds=abc", 400, 'strconv.ParseInt: parsing "abc": invalid syntax', id="a timeout that is no number"),
        pytest.param("labelSelector=a=b=c", 400, "found '=', expected: ',' or 'end of string'", id="a label selector with two values"),
        pytest.param(
            "fieldSelector=data.x=y",
            400,
            '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
            id="a field that cannot be selected by",
        ),
        pytest.param(
            "resourceVersion=abc",
            400,
            'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax',
            id="a version that is no number",
        ),
        pytest.param(
            "resourceVersionMatch=Exact",
            422,
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden '
            "unless resourceVersion is provided",
            id="a match without a version",
        ),
        pytest.param(
            "continue=garbage",
            400,
            "invalid continue token: continue key is not valid: invalid character '\\u0081' looking for beginning of value",
            id="a token that is none",
        ),
    ],
)
async def test_parameters_that_make_no_sense_are_refused(api: Api, query: str, status: int, message: str) -> None:
    answer = await api("GET", f"{CONFIGMAPS}?{query}")
    assert (answer.status, answer.message) == (status, message)


@pytest.mark.parametrize(
    ("accept", "path", "message"),
    [
        pytest.param("text/html", f"{CONFIGMAPS}/a", f"{NONE_OF_OURS}{OURS}", id="HTML"),
        pytest.param("text/html", CONFIGMAPS, f"{NONE_OF_OURS}{OURS}, {STREAMS}", id="HTML where watches are offered too"),
        pytest.param(
            "application/json;as=Nothing;v=v1;g=meta.k8s.io",
            CONFIGMAPS,
            f"only the following media types are accepted: {OURS}",
            id="a form that does not exist",
        ),
        pytest.param(
            PARTIAL,
            CONFIGMAPS,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)",
            id="an object's form for a list",
        ),
        pytest.param(
            PARTIAL_LIST,
            f"{CONFIGMAPS}/a",
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)",
            id="a list's form for an object",
        ),
    ],
)
async def test_forms_that_the_server_does_not_have_are_not_acceptable(api: Api, accept: str, path: str, message: str) -> None:
    await api.create("a")
    answer = await api("GET", path, accept=accept)
    assert (answer.status, answer.message) == (406, message)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(
            b"xyz", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (78797a)", id="something else"
        ),
        pytest.param(b"", "empty data (<empty>)", id="nothing at all"),
    ],
)
async def test_a_protobuf_body_that_cannot_be_read_is_a_bad_request(api: Api, body: bytes, why: str) -> None:
    answer = await api("POST", CONFIGMAPS, body.decode(), content=PROTOBUF)
    assert (answer.status, answer.message) == (400, f"{UNRECOGNIZED}{why}")


async def test_a_body_of_an_unknown_type_is_unsupported(api: Api) -> None:
    assert (await api("POST", CONFIGMAPS, "{}", content="text/plain")).status == 415
    assert (await api("PATCH", f"{CONFIGMAPS}/a", "{}", content="application/json")).status == 415


@pytest.mark.parametrize(
    ("type_", "patch", "message"),
    [
        pytest.param(MERGE, "{bad", "error decoding patch: invalid character 'b' looking for beginning of object key string", id="no JSON"),
        pytest.param(
            MERGE,
            "[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            id="a list to merge",
        ),
        pytest.param(
            JSON_PATCH,
            '{"op": "add"}',
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            id="one operation instead of a list",
        ),
        pytest.param(MERGE, "null", "Invalid JSON Patch", id="null to merge"),
        pytest.param(STRATEGIC, "{bad", "invalid character 'b' looking for beginning of object key string", id="no JSON, to merge by kind"),
        pytest.param(STRATEGIC, "", "unexpected end of JSON input", id="nothing to merge by kind"),
        pytest.param(
            STRATEGIC, '"x"', "json: cannot unmarshal string into Go value of type map[string]interface {}", id="a text to merge by kind"
        ),
        pytest.param(
            JSON_PATCH,
            "[1]",
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            id="a number as operation",
        ),
    ],
)
async def test_a_malformed_patch_is_a_bad_request(api: Api, type_: str, patch: str, message: str) -> None:
    await api.create("a")
    answer = await api("PATCH", f"{CONFIGMAPS}/a", patch, content=type_)
    assert (answer.status, answer.message) == (400, message)


@pytest.mark.parametrize("type_", [STRATEGIC, JSON_PATCH])
async def test_a_patch_that_is_null_changes_nothing(api: Api, type_: str) -> None:
    before = await api.create("a")
    answer = await api("PATCH", f"{CONFIGMAPS}/a", "null", content=type_)
    assert (answer.status, answer.version) == (200, before.version)


@pytest.mark.parametrize(
    ("type_", "patch", "shown"),
    [
        pytest.param(
            MERGE, '{"data":{"n":5}}', '"data":{"a":"2","n":5,"z":"1"},"kind":"ConfigMap","metadata":{"name":"m",', id="a merge patch"
        ),
        pytest.param(
            JSON_PATCH,
            '[{"op":"add","path":"/metadata/labels/n","value":5}]',
            '"labels":{"b":"2","n":5,"z":"1"},"managedFields":',
            id="a JSON patch, which sorts all of metadata as it reaches into it",
        ),
    ],
)
async def test_a_patch_that_does_not_fit_shows_what_it_gave_with_the_names_sorted_that_it_touched(
    api: Api, type_: str, patch: str, shown: str
) -> None:
    made = {"metadata": {"name": "m", "labels": {"z": "1", "b": "2"}}, "data": {"z": "1", "a": "2"}}
    assert (await api("POST", CONFIGMAPS, made)).status == 201
    answer = await api("PATCH", f"{CONFIGMAPS}/m", patch, content=type_)
    assert answer.status == 422
    assert json.dumps(shown)[1:-1] in answer.message
    assert "json: cannot unmarshal number into Go struct field" in answer.message


async def test_a_warning_about_a_name_that_no_header_may_hold_shows_it_as_go_does(api: Api) -> None:
    answer = await api("POST", CONFIGMAPS, '{"metadata":{"name":"odd"},"a\\u007f\\nb":1}')
    assert (answer.status, answer.warnings) == (201, [r'299 - "unknown field \"a\\x7f\\nb\""'])


async def test_an_unexpected_exception_is_an_internal_error_without_a_traceback(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(api.server.api.objects, "get", broken)
    answer = await api("GET", f"{CONFIGMAPS}/a")
    assert (answer.status, answer.body["reason"]) == (500, "InternalError")
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text
