"""Predicates about Services. Source: pkg/api/service/util.go, pkg/registry/core/service/strategy.go."""

from __future__ import annotations

from kubeloop.types import JSONObject


def type_of(service: JSONObject) -> str:
    """Return the type of a Service."""
    return str(service["spec"].get("type", ""))


def is_headless(service: JSONObject) -> bool:
    """Return whether the cluster IP of a Service is None."""
    return bool(service["spec"].get("clusterIPs") == ["None"])


def externally_accessible(service: JSONObject) -> bool:
    """Return whether clients outside of the cluster can connect to a Service."""
    kind = type_of(service)
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(service["spec"].get("externalIPs")))


def needs_health_check(service: JSONObject) -> bool:
    """Return whether a Service needs a node port for health checks."""
    return type_of(service) == "LoadBalancer" and service["spec"].get("externalTrafficPolicy") == "Local"


def needs_cluster_ip(service: JSONObject) -> bool:
    """Return whether a Service needs a cluster IP."""
    return type_of(service) != "ExternalName"


def needs_node_port(service: JSONObject) -> bool:
    """Return whether the ports of a Service need node ports."""
    if type_of(service) == "NodePort":
        return True
    return type_of(service) == "LoadBalancer" and service["spec"].get("allocateLoadBalancerNodePorts") is not False


def node_ports(service: JSONObject) -> list[int]:
    """Return the node ports of a Service."""
    return [port["nodePort"] for port in service["spec"].get("ports") or () if port.get("nodePort")]
