"""What clients think of makes no series."""

from __future__ import annotations

import pytest

from tests.apiserver.conftest import Api


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", "/api/v1/namespaces/default/configmaps/a/{}", id="subresources"),
        pytest.param("GET", "/api/v1/namespaces/default/{}", id="resources"),
        pytest.param("GET", "/apis/{}.example.com/v1/x", id="groups"),
        pytest.param("GET", "/{}", id="paths"),
        pytest.param("{}", "/api/v1/namespaces/default/configmaps", id="methods"),
    ],
)
async def test_what_nobody_serves_is_counted_together(api: Api, method: str, path: str) -> None:
    words = [f"thought{letter}" for letter in "abcdefgh"]
    for word in words:
        assert (await api(method.format(word.upper()), path.format(word))).status in (404, 405)
    counted = (await api("GET", "/metrics")).text
    assert "apiserver_request_total" in counted
    assert "thought" not in counted.lower()
