"""The words that people use for resources, in a cluster made up here."""

from __future__ import annotations

import pytest

from kubeloop.client.discovery import ApiResource, Discovered
from kubeloop.client.discovery.resources import ambiguity_warning, find_resources
from kubeloop.meta import GroupVersion, GroupVersionKind, GroupVersionResource


def resource(api_version: str, plural: str, kind: str, *short: str, singular: str = "", categories: tuple[str, ...] = ()) -> ApiResource:
    version = GroupVersion.parse(api_version)
    return ApiResource(
        gvr=GroupVersionResource(*version, plural),
        gvk=GroupVersionKind(*version, kind),
        namespaced=True,
        singular=singular,
        short_names=short,
        categories=categories,
    )


#: Groups in order of priority, preferred versions first.
CLUSTER = Discovered(
    (
        resource("v1", "pods", "Pod", "po", singular="pod", categories=("all",)),
        resource("v1", "services", "Service", "svc", categories=("all",)),
        resource("v1", "events", "Event", "ev"),
        resource("apps/v1", "deployments", "Deployment", "deploy", categories=("all",)),
        resource("apps/v1beta1", "deployments", "Deployment", "deploy", categories=("all",)),
        resource("events.k8s.io/v1", "events", "Event", "ev"),
        resource("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa"),
        resource("autoscaling/v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa"),
        resource("metrics.k8s.io/v1beta1", "pods", "PodMetrics", singular=""),
        resource("shop.example.com/v1", "po", "PurchaseOrderSet"),
        resource("shop.example.com/v1", "svcs", "StreetVendor", "svc", "deploy"),
    )
)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        pytest.param("pods", "v1 pods", id="a plural"),
        pytest.param("pod", "v1 pods", id="a singular"),
        pytest.param("Pod", "v1 pods", id="a kind"),
        pytest.param("PODS", "v1 pods", id="in any case"),
        pytest.param("svc", "v1 services", id="a short name of two resources is that of the group with the higher priority"),
        pytest.param("svc.shop.example.com", "shop.example.com/v1 svcs", id="a short name with a group"),
        pytest.param("po", "shop.example.com/v1 po", id="a plural wins over a short name"),
        pytest.param("pods.v1.", "v1 pods", id="a version and no group is the version wherever it is"),
        pytest.param("deploy.apps", "apps/v1 deployments", id="a short name and a group, in the preferred version"),
        pytest.param("deployments.v1beta1.apps", "apps/v1beta1 deployments", id="a version and a group"),
        pytest.param("Deployment.v1beta1.apps", "apps/v1beta1 deployments", id="a kind with a version and a group"),
        pytest.param("pods.metrics.k8s.io", "metrics.k8s.io/v1beta1 pods", id="a group with dots is no version"),
        pytest.param("hpa.autoscal", "autoscaling/v2 horizontalpodautoscalers", id="the beginning of a group"),
        pytest.param("deploy.v1beta1.app", "apps/v1beta1 deployments", id="the beginning of a group behind a version"),
        pytest.param("PurchaseOrderSet", "shop.example.com/v1 po", id="a kind that is not its plural"),
        pytest.param("podmetrics", "metrics.k8s.io/v1beta1 pods", id="a kind stands for a singular that is missing"),
        pytest.param("events", "v1 events", id="the core group comes first"),
        pytest.param("hpa.v3.autoscaling", None, id="a version that is not served"),
        pytest.param("pods.apps", None, id="a group that has no such resource"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_what_a_word_means(word: str, expected: str | None) -> None:
    found = find_resources(CLUSTER, word)
    assert (f"{found[0].gvr.group_version} {found[0].gvr.resource}" if found else None) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        pytest.param(
            "svc",
            'short name "svc" means services and could also match lower priority resource svcs.shop.example.com; '
            "write RESOURCE.GROUP to choose",
            id="a short name of two resources",
        ),
        pytest.param("svc.shop.example.com", "", id="not where the group is said"),
        pytest.param("hpa", "", id="not for versions of one resource"),
        pytest.param("events", "", id="not for plurals, as kubectl"),
        pytest.param("pods", "", id="not for one resource"),
    ],
)
def test_an_ambiguous_name_causes_a_warning(word: str, expected: str) -> None:
    assert ambiguity_warning(word, find_resources(CLUSTER, word)) == expected


def test_a_category_has_each_resource_in_its_preferred_version() -> None:
    assert [str(one.gvr.group_version) + " " + one.gvr.resource for one in CLUSTER.category("all")] == [
        "v1 pods",
        "v1 services",
        "apps/v1 deployments",
    ]
