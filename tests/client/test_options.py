"""Options are checked when they are made, by the name of the option."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client, DeleteOptions, ListOptions, WatchOptions, WriteOptions
from kubeloop.client.options import completed
from kubeloop.config import ClusterConfig
from kubeloop.transport import Transport


@pytest.mark.parametrize(
    ("options", "values", "fault"),
    [
        pytest.param(ListOptions, {"limit": -1}, "limit=-1: must be a whole number, 0 or more", id="a negative page"),
        pytest.param(ListOptions, {"limit": "5"}, "limit='5': must be a whole number", id="text for a page's size"),
        pytest.param(
            ListOptions,
            {"resource_version_match": "exact"},
            "resource_version_match='exact': must be one of Exact, NotOlderThan",
            id="an unknown match",
        ),
        pytest.param(
            WriteOptions, {"field_validation": "strict"}, "field_validation='strict': must be one of Strict, Warn, Ignore", id="validation"
        ),
        pytest.param(
            DeleteOptions, {"grace_period_seconds": True}, "grace_period_seconds=True: must be a whole number", id="a truth for seconds"
        ),
        pytest.param(
            DeleteOptions,
            {"propagation_policy": "All"},
            "propagation_policy='All': must be one of Background, Foreground, Orphan",
            id="orphans",
        ),
    ],
)
def test_a_wrong_option_is_named(options: Any, values: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        options(**values)


def test_options_complete_each_other() -> None:
    defaults = WriteOptions(field_manager="ops", field_validation="Strict")
    assert WriteOptions(dry_run=True).over(defaults) == WriteOptions(dry_run=True, field_manager="ops", field_validation="Strict")
    assert WriteOptions(field_manager="dev", field_validation="Warn").over(defaults) == WriteOptions(
        field_manager="dev", field_validation="Warn"
    )


def test_a_keyword_takes_precedence_over_the_same_field_of_the_options() -> None:
    options = ListOptions(limit=1, label_selector="a", timeout_seconds=4)
    assert completed(ListOptions, options, limit=0, label_selector=None) == ListOptions(limit=0, label_selector="a", timeout_seconds=4)
    assert completed(ListOptions, None, limit=None) == ListOptions()
    with pytest.raises(ValueError, match="limit=-1: must be a whole number"):
        completed(ListOptions, options, limit=-1)


@pytest.mark.parametrize("verb", ["list", "list_metadata", "watch", "watch_metadata"])
def test_options_of_another_verb_are_refused(verb: str) -> None:
    client = Client(Transport(ClusterConfig(server="https://127.0.0.1:1")))
    with pytest.raises(TypeError, match=r"options=a WriteOptions: must be (List|Watch)Options"):
        getattr(client, verb)(ConfigMap, options=WriteOptions())


def test_a_watch_refuses_initial_events_because_it_lists_the_existing_objects_itself() -> None:
    client = Client(Transport(ClusterConfig(server="https://127.0.0.1:1")))
    with pytest.raises(ValueError, match="begins with the existing objects anyway"):
        client.watch(ConfigMap, options=WatchOptions(send_initial_events=True))
