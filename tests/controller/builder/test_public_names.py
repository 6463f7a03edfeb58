"""What a controller shows the class that derives from it. What its runner needs is private."""

from __future__ import annotations

import pytest

from kubeloop.controller import Controller, HandlerController, KeyController

DECLARED = {
    "debounce",
    "gets",
    "indexes",
    "metadata_only",
    "name",
    "needs_leader",
    "owns",
    "pause_annotation",
    "predicates",
    "reads",
    "sources",
    "status_writes",
    "timeout",
    "warm_up",
    "watches",
    "workers",
    "write_verbs",
    "writes",
}
OVERRIDDEN = {"event_sinks", "reconcile", "retry_limiter", "start", "stop", "tenants"}
USED = {
    "cached",
    "cached_kinds",
    "client",
    "clock",
    "cluster",
    "enqueue",
    "events",
    "informer",
    "lister",
    "log",
    "metadata_lister",
    "owned",
    "pause",
    "paused",
    "resume",
}


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        pytest.param(Controller, set(), id="a controller"),
        pytest.param(KeyController, set(), id="a controller of keys"),
        pytest.param(HandlerController, {"handler_errors"}, id="a controller of handlers"),
    ],
)
def test_shows_what_a_class_declares_overrides_and_uses_and_nothing_of_its_runner(kind: type[object], more: set[str]) -> None:
    assert {name for name in dir(kind) if not name.startswith("_")} == DECLARED | OVERRIDDEN | USED | more
