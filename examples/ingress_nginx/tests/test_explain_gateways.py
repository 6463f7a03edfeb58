"""The explanation of requests at the listeners of Gateways: a table of clusters."""

from __future__ import annotations

from typing import Any

import pytest

from examples.ingress_nginx.explain_gateways import explain_gateways
from examples.ingress_nginx.ingress.builder import IngressBuilder
from examples.ingress_nginx.tests.gateway_objects import GatewayTable, build, gateway, grpc_route, http_route, listener, path, rule
from examples.ingress_nginx.tests.objects import ClusterTable, ingress, service, tls_secret
from kubeloop.meta import Resource


def texts_of(objects: list[Resource], host: str, target: str = "/") -> list[str]:
    """Return the text of each listener's answer."""
    cluster: ClusterTable = GatewayTable(*objects)
    builder = IngressBuilder(cluster)
    builder.rebuild()
    return [found.to_text() for found in explain_gateways(build(*objects), builder, cluster, host, target)]


HEADER = [{"name": "version", "value": "2"}]
COPIES: dict[str, Any] = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "web", "port": 80}, "percent": 5}}


@pytest.mark.parametrize(
    ("objects", "host", "target", "expected"),
    [
        pytest.param(
            [gateway(), http_route("web", hosts=["a.test"])],
            "A.test:80",
            "/x?a=1",
            [
                "a.test/x at port 80",
                "├─ answer       an endpoint of shop/web:80",
                "├─ host         a.test",
                "├─ path         / (Prefix)",
                "│  ├─ HTTPRoute shop/web rules[0]",
                "│  └─ shop/web:80: 2 endpoints, round_robin",
                "│       10.0.0.1:8080",
                "└─ no other route has this host and path",
            ],
            id="a route leads to the endpoints of a service",
        ),
        pytest.param(
            [gateway(), http_route("web", rule(path("/a", headers=HEADER)), rule(path("/"), filters=[COPIES]))],
            "a.test",
            "/a",
            [
                "├─ host         no Gateway or route has it",
                "├─ if header version is '2'",
                "│  ├─ HTTPRoute shop/web rules[0]",
                "├─ otherwise",
                "│  ├─ HTTPRoute shop/web rules[1]",
                "│  ├─ copies of 0.05 of them go to gateway.shop.web.80",
            ],
            id="a request without the header goes to a less specific path",
        ),
        pytest.param(
            [gateway(), http_route("web", rule(path("/a", headers=HEADER)))],
            "a.test",
            "/a",
            ["├─ answer       404: unless the conditions of a route hold"],
            id="no route without conditions matches",
        ),
        pytest.param(
            [gateway(), http_route("web", rule(path("/a"), to=["none"]))],
            "a.test",
            "/a",
            ["│  └─ a backend: its reference leads nowhere: NGINX answers 500"],
            id="a backend that does not exist",
        ),
        pytest.param(
            [
                gateway("front", listener(hostname="*.test"), listener("safe", 443, protocol="HTTPS", certificates=["cert"])),
                tls_secret("cert", "a.test"),
                http_route("web", rule(path("/a")), hosts=["a.test"], parents=[{"name": "front", "sectionName": "safe"}]),
            ],
            "a.test",
            "/b",
            [
                "a.test/b at port 443 with TLS",
                "├─ answer       404: no path of the host matches",
                "   HTTPRoute shop/web  its matches do not fit the path, or are less specific",
                "a.test/b at port 80",
                "   HTTPRoute shop/web  it is attached to other listeners",
            ],
            id="each listener has an answer",
        ),
        pytest.param(
            [gateway("front", listener(hostname="b.test")), http_route("web", hosts=["a.test"])],
            "a.test",
            "/",
            [],
            id="a listener with another host name has none",
        ),
        pytest.param(
            [gateway(), http_route("web"), grpc_route("calls", parents=[{"name": "front", "sectionName": "none"}])],
            "a.test",
            "/",
            ["   GRPCRoute shop/calls  NoMatchingParent: "],
            id="a route that is not accepted",
        ),
        pytest.param([gateway(), service("other"), ingress("web", "a.test / web:80")], "a.test", "/", ["/ at port 80"], id="no route"),
    ],
)
def test_an_answer_for_each_listener(objects: list[Resource], host: str, target: str, expected: list[str]) -> None:
    texts = texts_of(objects, host, target)
    lines = [line for text in texts for line in text.splitlines()]
    missing = [text for text in expected if not any(line.startswith(text) or line.endswith(text) for line in lines)]
    assert not missing, "\n".join(lines)
    assert bool(texts) == bool(expected)
