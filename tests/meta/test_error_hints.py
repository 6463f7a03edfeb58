"""The first line of an answer's error tells a person what to do."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.meta import ApiError, Status, StatusCause, StatusDetails

FORBIDDEN = 'pods "a" is forbidden: User "u" cannot '
CASES: list[Any] = [
    pytest.param(
        Status(reason="Unauthorized", message="Unauthorized", code=401),
        "Unauthorized: Unauthorized (get x); log in again or renew the credentials; kubeloop config explain says where they come from",
        id="credentials",
    ),
    pytest.param(
        Status(reason="Forbidden", message=f'{FORBIDDEN}list resource "pods" in API group "" in the namespace "shop"'),
        "(get x); what it takes: kubectl create role NAME --verb=list --resource=pods -n shop, bound to that user",
        id="a permission in a namespace",
    ),
    pytest.param(
        Status(reason="Forbidden", message=f'{FORBIDDEN}patch resource "deployments/scale" in API group "apps" at the cluster scope'),
        "(get x); what it takes: kubectl create clusterrole NAME --verb=patch --resource=deployments.apps/scale, bound to that user",
        id="a permission everywhere, of a subresource",
    ),
    pytest.param(
        Status(reason="Forbidden", message='forbidden: User "u" cannot get path "/metrics"'),
        "(get x); what it takes: kubectl create clusterrole NAME --verb=get --non-resource-url=/metrics, bound to that user",
        id="a permission of a path",
    ),
    pytest.param(Status(reason="Forbidden", message="exceeded quota"), "Forbidden: exceeded quota (get x)", id="another refusal"),
    pytest.param(
        Status(reason="Conflict", message="the object has been modified; please apply"),
        "Conflict: the object has been modified; please apply (get x); client.update_with_retry reads, changes and retries",
        id="another client wrote",
    ),
    pytest.param(
        Status(reason="Conflict", message="m", details=StatusDetails(causes=[StatusCause(reason="FieldManagerConflict")])),
        "Conflict: m (get x); leave these fields out, or take them over with force=True",
        id="fields of another manager",
    ),
    pytest.param(Status(reason="Conflict", message="precondition"), "Conflict: precondition (get x)", id="another conflict"),
    pytest.param(
        Status(reason="AlreadyExists", message='"a" already exists'),
        'AlreadyExists: "a" already exists (get x); create_or_update and apply change the existing object',
        id="a name that is taken",
    ),
    pytest.param(
        Status(code=500, message="resourceVersion should not be set on objects to be created"),
        "HTTP 500: resourceVersion should not be set on objects to be created (get x); it was read from a server: "
        "give a copy new metadata, ObjectMeta(name=...)",
        id="an object that was read is created again",
    ),
    pytest.param(Status(reason="Expired", message="too old"), "Expired: too old (get x); list again and go on from there", id="too old"),
    pytest.param(
        Status(reason="TooManyRequests", message="m", details=StatusDetails(retry_after_seconds=3)),
        "TooManyRequests: m (get x); try again in 3 s",
        id="too many",
    ),
    pytest.param(Status(reason="NotFound", message='pods "a" not found'), 'NotFound: pods "a" not found (get x)', id="nothing to add"),
]


@pytest.mark.parametrize(("status", "expected"), CASES)
def test_it_says(status: Status, expected: str) -> None:
    text = str(ApiError.from_status(status, "get x"))
    assert text.endswith(expected)
    assert "\n" not in text


def test_an_error_that_is_made_here_has_nothing_added() -> None:
    assert str(ApiError.from_status(Status(reason="AlreadyExists", message="m"))) == "AlreadyExists: m"
