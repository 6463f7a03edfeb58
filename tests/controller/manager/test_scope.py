"""What informers keep: a kind's own words first, then those for all kinds (behaviour S225)."""

import pytest

from kubeloop.api.core.v1 import ConfigMap, Node, Pod, Secret
from kubeloop.client import ALL_NAMESPACES
from kubeloop.controller.reader.reader import CacheScope, InformerSelection, KindCacheScope
from kubeloop.meta import Resource


def selection(
    namespace: str | tuple[str, ...] = ALL_NAMESPACES, label_selector: str | None = None, field_selector: str | None = None
) -> InformerSelection:
    return InformerSelection(namespace=namespace, label_selector=label_selector, field_selector=field_selector)


SCOPE = CacheScope(
    namespaces=["shop", "bank", "shop"],
    label_selector="app=web",
    kinds={
        Pod: KindCacheScope(namespaces="jobs", field_selector="spec.nodeName=n1"),
        Secret: KindCacheScope(namespaces=ALL_NAMESPACES, label_selector=""),
        Node: KindCacheScope(label_selector={"pool": "gpu"}),
    },
)


@pytest.mark.parametrize(
    ("kind", "namespaced", "expected"),
    [
        pytest.param(ConfigMap, True, selection(("bank", "shop"), "app=web"), id="a kind of which nothing is said is as all kinds are"),
        pytest.param(Pod, True, selection("jobs", "app=web", "spec.nodeName=n1"), id="a kind's own words come first, one by one"),
        pytest.param(Secret, True, selection(), id="everything, given for a kind, overrides the setting for all"),
        pytest.param(
            Node, False, selection(ALL_NAMESPACES, "pool=gpu"), id="namespaces do not concern a cluster-scoped kind, selectors do"
        ),
    ],
)
def test_selection(kind: type[Resource], namespaced: bool, expected: InformerSelection) -> None:
    assert SCOPE.select(kind, namespaced=namespaced) == expected


def test_no_scope_selects_everything() -> None:
    assert CacheScope().select(Pod, namespaced=True) == selection()


@pytest.mark.parametrize(
    ("kind", "namespace", "covered"),
    [
        pytest.param(ConfigMap, "shop", True, id="a namespace that is kept"),
        pytest.param(ConfigMap, "jobs", False, id="a namespace that is not kept"),
        pytest.param(ConfigMap, "", False, id="all namespaces where some are kept"),
        pytest.param(Secret, "", True, id="all namespaces where all are kept"),
    ],
)
def test_reach(kind: type[Resource], namespace: str, covered: bool) -> None:
    assert SCOPE.covers(kind, namespace) is covered


def test_what_can_be_no_namespace_or_selector_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="CacheScope: namespace 'Shop' cannot be"):
        CacheScope(namespaces=["Shop"])
    with pytest.raises(ValueError, match="app in"):
        KindCacheScope(label_selector="app in")
