"""The demo reads kubectl's tables by column, and its rules are valid."""

from __future__ import annotations

from pathlib import Path

from examples.api_proxy.steps import columns_of
from kubeloop.proxy.rules import RuleSet

_TABLE = """\
NAME    READY   STATUS    NODE            NOMINATED NODE
vault   1/1     Running   kubeloop-node   <none>
web     0/1     Pending   hidden          <none>
"""


def test_columns_of_a_table_are_found_by_their_heads() -> None:
    assert columns_of(_TABLE) == {"vault": ["vault", "Running", "kubeloop-node"], "web": ["web", "Pending", "hidden"]}


def test_the_rules_of_the_demo_are_valid() -> None:
    rules = RuleSet.load(Path(__file__).parents[1] / "rules.yaml")
    assert [rule.name for rule in rules.rules] == ["hide-internal", "hide-nodes", "router"]
