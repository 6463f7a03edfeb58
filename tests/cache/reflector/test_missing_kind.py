"""Log records while a server does not serve a kind, and when it does."""

from __future__ import annotations

import logging

import pytest

from kubeloop import Resource, custom_resource
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache.reflector.event_decoder import ReflectorStore
from kubeloop.cache.reflector.reporter import ReflectorReporter, install_advice
from kubeloop.cache.reflector.steps import ListPage, Reason, ReplaceStore, WatchList
from kubeloop.meta import Unstructured
from kubeloop.meta.errors import NotFound
from kubeloop.meta.status import Status


@custom_resource("missing.example.com/v1", plural="missings")
class Missing(Resource):
    """A kind that no server serves."""


class _UnusedStore:
    def failed(self, error: Exception) -> None: ...


COMMAND = f"kubeloop generate crd {__name__}:Missing | kubectl apply -f -"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param(
            Missing,
            f"the server does not serve Missing (missing.example.com/v1); install its definition: {COMMAND}",
            id="for a class of the program the command that installs it",
        ),
        pytest.param(ConfigMap, "", id="for a kind of Kubernetes nothing"),
        pytest.param(Unstructured.for_kind("a.b/v1", "Foo", plural="foos"), "", id="for a kind without a schema nothing"),
    ],
)
def test_advice(kind: type[Resource], expected: str) -> None:
    assert install_advice(kind) == expected


def test_a_missing_kind_is_one_warning_with_the_command_then_a_short_line_a_try_and_a_line_when_it_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    telling = ReflectorReporter("missings", None, Missing)
    sink: ReflectorStore = _UnusedStore()  # type: ignore[assignment]
    stream, listing = WatchList(version="", pause=True, why=Reason.FIRST), ListPage(version="", limit=0, why=Reason.FALLBACK)
    for _ in range(3):
        telling.failed(NotFound(Status(code=404)), "the state cannot be streamed")
        telling.next(listing, 0.0)
        telling.failed(NotFound(Status(code=404)), "cannot list", sink, "list")
        telling.next(stream, 2.0)
    telling.next(ReplaceStore(version="5"), 0.0)
    first, *others = [record.getMessage() for record in caplog.records]
    assert COMMAND in first
    assert [text.partition(";")[0] for text in others] == [
        "missings: still not served (try 2)",
        "missings: still not served (try 3)",
        "missings: served now",
    ]
