"""The environment of a container: expansion, references, the downward API, variables of services."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kubelet.environment import (
    ConfigurationError,
    ConfigurationSources,
    PodFields,
    container_environment,
    expand,
    references,
    service_variables,
)

VARIABLES = {"VAR_A": "A", "VAR_B": "B", "VAR_EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("$(VAR_A)", "A", id="a reference is replaced"),
        pytest.param("___$(VAR_B)___", "___B___", id="a reference within text is replaced"),
        pytest.param("$(VAR_A)$(VAR_B)", "AB", id="adjacent references are replaced"),
        pytest.param("$(VAR_DNE)", "$(VAR_DNE)", id="an unknown reference stays"),
        pytest.param("$$(VAR_A)", "$(VAR_A)", id="two dollar signs escape a reference"),
        pytest.param("$$$(VAR_A)", "$A", id="three dollar signs are an escaped one and a reference"),
        pytest.param("$VAR_A", "$VAR_A", id="a reference without parentheses stays"),
        pytest.param("$(VAR_A", "$(VAR_A", id="an open reference stays"),
        pytest.param("f$(VAR_EMPTY)oo$", "foo$", id="an empty value and a dollar sign at the end"),
        pytest.param("$(VAR_A$(VAR_B)", "$(VAR_A$(VAR_B)", id="a reference within a name is part of the name"),
    ],
)
def test_expand(text: str, expected: str) -> None:
    assert expand(text, VARIABLES) == expected


POD: dict[str, Any] = {
    "metadata": {"name": "web-0", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}, "annotations": {"a": 'x"y'}},
    "spec": {
        "nodeName": "n1",
        "serviceAccountName": "default",
        "containers": [{"name": "c", "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "1500m"}}}],
    },
}
FIELDS = PodFields("127.64.0.1", "127.0.0.1", {"cpu": "4", "memory": "1Gi"})
SOURCES = ConfigurationSources(
    {("ConfigMap", "settings"): {"color": b"red"}, ("Secret", "keys"): {"token": b"abc"}, ("ConfigMap", "gone"): None}
)


def environment(**container: Any) -> dict[str, str]:
    return container_environment(POD, {"name": "c", **container}, SOURCES, FIELDS, {"KUBERNETES_PORT": "tcp://x", "WEB_PORT": "tcp://y"})


def field_ref(path: str) -> dict[str, Any]:
    return {"env": [{"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}


def resource_ref(resource: str, divisor: str = "0") -> dict[str, Any]:
    return {"env": [{"name": "V", "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}}]}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param({"env": [{"name": "V", "value": "x"}]}, "x", id="a value"),
        pytest.param({"env": [{"name": "A", "value": "x"}, {"name": "V", "value": "$(A)-$(B)"}]}, "x-$(B)", id="earlier variables expand"),
        pytest.param({"env": [{"name": "V", "value": "$(WEB_PORT)"}]}, "tcp://y", id="variables of services expand"),
        pytest.param({"env": [{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}}]}, "red", id="a key"),
        pytest.param({"env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}}]}, "abc", id="a secret's key"),
        pytest.param({"envFrom": [{"prefix": "V", "configMapRef": {"name": "settings"}}]}, None, id="envFrom with a prefix"),
        pytest.param(
            {"env": [{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "k", "optional": True}}}]},
            None,
            id="an optional reference to nothing sets no variable",
        ),
        pytest.param(field_ref("metadata.name"), "web-0", id="the pod's name"),
        pytest.param(field_ref("metadata.labels['app']"), "web", id="a label"),
        pytest.param(field_ref("metadata.annotations"), 'a="x\\"y"', id="all annotations, quoted"),
        pytest.param(field_ref("status.podIP"), "127.64.0.1", id="the pod's address"),
        pytest.param(field_ref("spec.nodeName"), "n1", id="the node's name"),
        pytest.param(resource_ref("limits.memory"), str(64 << 20), id="a limit"),
        pytest.param(resource_ref("limits.memory", "1Mi"), "64", id="a limit in another unit"),
        pytest.param(resource_ref("requests.cpu"), "2", id="a request is rounded up"),
        pytest.param(resource_ref("requests.cpu", "1m"), "1500", id="a request in thousandths"),
        pytest.param(resource_ref("limits.cpu"), "4", id="a missing limit is the node's"),
    ],
)
def test_a_variable_has_the_value(container: dict[str, Any], expected: str | None) -> None:
    assert environment(**container).get("V") == expected


def test_env_from_sets_a_variable_for_each_key_behind_its_prefix() -> None:
    assert environment(envFrom=[{"prefix": "P_", "configMapRef": {"name": "settings"}}])["P_color"] == "red"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param({"configMapKeyRef": {"name": "gone", "key": "k"}}, 'configmap "gone" not found', id="a missing ConfigMap"),
        pytest.param({"secretKeyRef": {"name": "none", "key": "k"}}, 'secret "none" not found', id="a missing Secret"),
        pytest.param(
            {"configMapKeyRef": {"name": "settings", "key": "k"}}, "couldn't find key k in ConfigMap shop/settings", id="a missing key"
        ),
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error_in_the_words_of_kubelet(source: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        environment(env=[{"name": "V", "valueFrom": source}])


def test_references_names_each_object_once() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
        "env": [{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}}, {"name": "W", "value": "x"}],
    }
    assert references(container) == {("ConfigMap", "a"), ("Secret", "b")}


def test_services_of_the_namespace_and_the_api_server_get_variables() -> None:
    def service(namespace: str, name: str, address: str, port: str = "") -> dict[str, Any]:
        return {"metadata": {"namespace": namespace, "name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80, "name": port}]}}

    services = [
        service("shop", "my-web", "127.96.0.9", "http"),
        service("other", "db", "127.96.0.8"),
        service("default", "kubernetes", "127.96.0.1"),
        service("shop", "headless", "None"),
    ]
    found = service_variables(services, "shop")
    assert found["MY_WEB_SERVICE_HOST"] == "127.96.0.9"
    assert found["MY_WEB_SERVICE_PORT_HTTP"] == "80"
    assert found["MY_WEB_PORT_80_TCP_ADDR"] == "127.96.0.9"
    assert found["KUBERNETES_PORT"] == "tcp://127.96.0.1:80"
    assert not [name for name in found if name.startswith(("DB", "HEADLESS"))]


def test_a_pod_without_service_links_gets_the_variables_of_the_api_server_only() -> None:
    pod = {**POD, "spec": {**POD["spec"], "enableServiceLinks": False}}
    found = container_environment(pod, {"name": "c"}, SOURCES, FIELDS, {"KUBERNETES_PORT": "tcp://x", "WEB_PORT": "tcp://y"})
    assert found == {"KUBERNETES_PORT": "tcp://x"}
