"""The admission of pods by the kubelet: host ports of other pods of the node."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kubelet.container_spec import has_port_conflict


def pod(*ports: dict[str, Any], phase: str = "", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "ports": list(ports)}
    return {"spec": {"containers": [container], **spec}, "status": {"phase": phase}}


HTTP = {"containerPort": 80, "hostPort": 80}


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param(pod(HTTP), True, id="the same port is taken"),
        pytest.param(pod({**HTTP, "hostIP": "127.0.0.2"}), True, id="a port of all addresses includes that of one address"),
        pytest.param(pod({**HTTP, "protocol": "UDP"}), False, id="another protocol is another port"),
        pytest.param(pod({**HTTP, "hostPort": 81}), False, id="another number is another port"),
        pytest.param(pod({"containerPort": 80}), False, id="a port of the pod alone is no host port"),
        pytest.param(pod(HTTP, phase="Failed"), False, id="a pod that has ended has no port"),
        pytest.param(pod(initContainers=[{"ports": [HTTP], "restartPolicy": "Always"}]), True, id="a sidecar has ports"),
        pytest.param(pod(initContainers=[{"ports": [HTTP]}]), False, id="an init container has none while the pod runs"),
    ],
)
def test_a_host_port_conflicts_with_another_pod(other: dict[str, Any], expected: bool) -> None:
    assert has_port_conflict(pod(HTTP), [other]) is expected
    assert not has_port_conflict(pod(), [other])


def test_two_addresses_have_the_same_port() -> None:
    assert not has_port_conflict(pod({**HTTP, "hostIP": "127.0.0.2"}), [pod({**HTTP, "hostIP": "127.0.0.3"})])
