"""Options are checked when they are made, by the name of the option."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.client import DeleteOptions, ListOptions, WriteOptions


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
