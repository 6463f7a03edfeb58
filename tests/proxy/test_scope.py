"""Paths that two programs could read differently are refused."""

from __future__ import annotations

import pytest

from kubeloop.endpoints.request_info import request_info
from kubeloop.meta.errors import ApiError
from kubeloop.proxy.scope import check_path
from tests.proxy.samples import request_for


@pytest.mark.parametrize(
    ("path", "code"),
    [
        pytest.param("/api/v1/namespaces/shop/pods", 0, id="a list"),
        pytest.param("/api/v1/namespaces/shop/pods/web-0/log", 0, id="a subresource"),
        pytest.param("/apis/apps/v1/deployments", 0, id="a named group"),
        pytest.param("/version", 0, id="no resource"),
        pytest.param("/api", 0, id="the groups of the core"),
        pytest.param("/apis", 0, id="the other groups"),
        pytest.param("/api/v1/namespaces/shop/pods/web-0/proxy/a//b", 0, id="anything behind a pod"),
        pytest.param("/api/v1/namespaces/shop/pods/web-0/proxy/../../log", 404, id="two dots behind a pod, which a load balancer resolves"),
        pytest.param("//api/v1/secrets", 404, id="a slash before"),
        pytest.param("/api//v1/secrets", 404, id="a slash within"),
        pytest.param("/api/v1//secrets", 404, id="a slash before the resource"),
        pytest.param("/api/v1/namespaces/shop/pods//web-0", 404, id="a slash before the name"),
        pytest.param("/api/v1/./secrets", 404, id="a dot"),
        pytest.param("/api/v1/x/../secrets", 404, id="two dots"),
        pytest.param("/version/../api/v1/secrets", 404, id="two dots outside"),
        pytest.param("/api/v1/namespaces/shop/pods/..", 404, id="two dots at the end"),
        pytest.param("/api/v1/namespaces\\shop/pods", 404, id="a backslash"),
        pytest.param("/api/v1/pods\x00", 404, id="a NUL"),
        pytest.param("/api/v1/pods\n", 404, id="a newline"),
        pytest.param("/api/v1/pods\x7f", 404, id="a DEL"),
        pytest.param("/api/v1//namespaces/shop/pods/web-0/proxy/", 404, id="a slash before a pod's proxy"),
        pytest.param("/api/v1/watch/pods", 400, id="a path that names the verb watch"),
        pytest.param("/apis/apps/v1/watch/deployments", 400, id="and with a group"),
        pytest.param("/api/v1/proxy/namespaces/shop/pods/web-0", 400, id="a path that names the verb proxy"),
    ],
)
def test_a_path(path: str, code: int) -> None:
    request = request_for(path)
    if not code:
        check_path(request, request_info(request))
        return
    with pytest.raises(ApiError) as raised:
        check_path(request, request_info(request))
    assert raised.value.status.code == code


@pytest.mark.parametrize("method", ["PROPFIND", "TRACE", "LOCK"])
def test_an_unknown_method_of_a_resource_is_not_allowed(method: str) -> None:
    request = request_for("/api/v1/pods", method)
    with pytest.raises(ApiError) as raised:
        check_path(request, request_info(request))
    assert raised.value.status.code == 405
