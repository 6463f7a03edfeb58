"""Which proxy is used: the rules of golang.org/x/net/http/httpproxy, as kubectl follows them."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from kubeloop.http1.proxies import proxy_for
from kubeloop.meta import ConfigError

P = {"HTTPS_PROXY": "http://proxy.example:3128"}


def used(server: str, environment: dict[str, str], configured: str = "") -> str:
    found = proxy_for(urlsplit(server), configured, "here", environment)
    return found.shown if found else ""


@pytest.mark.parametrize(
    ("server", "environment", "expected"),
    [
        pytest.param("https://api.example", P, "http://proxy.example:3128", id="the proxy of the URL's scheme"),
        pytest.param("http://api.example", P, "", id="not that of another scheme"),
        pytest.param("https://api.example", {"https_proxy": "http://p:1"}, "http://p:1", id="small letters too"),
        pytest.param("https://api.example", {"https_proxy": "http://a:1", "HTTPS_PROXY": "http://b:1"}, "http://b:1", id="capitals first"),
        pytest.param("https://api.example", {"HTTPS_PROXY": "p:3128"}, "http://p:3128", id="without a scheme it is http"),
        pytest.param("https://api.example", {"HTTPS_PROXY": ""}, "", id="an empty one is none"),
        pytest.param("http://api.example", {"HTTP_PROXY": "http://p:1"}, "http://p:1", id="plain HTTP has its own"),
        pytest.param(
            "http://api.example", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, "", id="which a CGI request may have set"
        ),
        pytest.param("https://127.0.0.1:6443", P, "", id="never for loopback"),
        pytest.param("https://127.9.9.9:6443", P, "", id="never for the rest of loopback"),
        pytest.param("https://localhost:6443", P, "", id="never for localhost"),
        pytest.param("https://[::1]:6443", P, "", id="never for loopback of IPv6"),
    ],
)
def test_the_environment(server: str, environment: dict[str, str], expected: str) -> None:
    assert used(server, environment) == expected


@pytest.mark.parametrize(
    ("server", "without", "direct"),
    [
        pytest.param("https://api.example", "api.example", True, id="a name"),
        pytest.param("https://API.Example", "api.EXAMPLE", True, id="in any case"),
        pytest.param("https://a.api.example", "api.example", True, id="a name covers the domains below it"),
        pytest.param("https://notapi.example", "api.example", False, id="but no name that only ends so"),
        pytest.param("https://a.example", ".example", True, id="a dot covers the domains below"),
        pytest.param("https://example", ".example", False, id="and not the name itself"),
        pytest.param("https://a.example", "*.example", True, id="a star and a dot likewise"),
        pytest.param("https://a.example", "x, b.example , a.example", True, id="one of several"),
        pytest.param("https://a.example", "*", True, id="everything"),
        pytest.param("https://a.example", ",,", False, id="nothing"),
        pytest.param("https://a.example:6443", "a.example:6443", True, id="a port that is the same"),
        pytest.param("https://a.example", "a.example:443", True, id="the scheme's port counts"),
        pytest.param("https://a.example:6443", "a.example:443", False, id="a port that is another"),
        pytest.param("https://10.1.2.3:6443", "10.0.0.0/8", True, id="a network"),
        pytest.param("https://11.1.2.3:6443", "10.0.0.0/8", False, id="another network"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.3", True, id="an address"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.3:443", False, id="an address with another port"),
        pytest.param("https://[fd00::1]:6443", "fd00::/8", True, id="a network of IPv6"),
        pytest.param("https://[fd00::1]:6443", "[fd00::1]:6443", True, id="an address of IPv6 with its port"),
        pytest.param("https://10.1.2.3", "10.1.2.3.example,10.1", False, id="an entry that is no address"),
        pytest.param("https://10.1.2.3", "10.0.0.0/8:443", False, id="a network cannot have a port"),
        pytest.param("https://10.1.2.3", "10.0.0.0/255.0.0.0", False, id="a network is not written with a mask"),
        pytest.param("https://10.1.2.3", "::ffff:10.1.2.3", True, id="an address of IPv4 written as one of IPv6"),
        pytest.param("https://[fd00::1]", "[fd00::1]", False, id="brackets without a port are no address"),
        pytest.param("https://a.example", "a.example:", True, id="an empty port is any"),
        pytest.param("https://a.example", "a.example:https", False, id="a port is a number"),
        pytest.param("https://a.example", "*example", False, id="a star needs its dot"),
        pytest.param("https://a.example.", "a.example", False, id="a dot at the end of the server's name is part of it"),
        pytest.param("https://m\u00fcnchen.example", "xn--mnchen-3ya.example", True, id="a name in other letters"),
    ],
)
def test_no_proxy_names_the_servers_without_a_proxy(server: str, without: str, direct: bool) -> None:
    assert (used(server, {**P, "NO_PROXY": without}) == "") is direct
    assert (used(server, {**P, "no_proxy": without}) == "") is direct


def test_a_configured_proxy_is_used_whatever_the_environment_says() -> None:
    assert used("https://127.0.0.1", {**P, "NO_PROXY": "*"}, "http://mine:1") == "http://mine:1"


@pytest.mark.parametrize("value", ["ftp://user:hidden@p:1", "http://", "http://p:99999", "http://user:hidden@:1"])
def test_a_proxy_that_cannot_be_used_is_an_error_without_its_password(value: str) -> None:
    with pytest.raises(ConfigError, match="HTTPS_PROXY is not a usable URL of a proxy") as raised:
        used("https://api.example", {"HTTPS_PROXY": value})
    assert "hidden" not in str(raised.value)


def test_printing_a_proxy_shows_no_password() -> None:
    found = proxy_for(urlsplit("https://a"), "http://me:hidden@p:1", "here", {})
    assert repr(found) == "Proxy(http://p:1, proxy-url in here)"


@pytest.mark.parametrize("scheme", ["http", "https", "socks5", "socks5h"])
def test_the_environment_may_name_a_proxy_of_each_kind_that_can_be_dialled(scheme: str) -> None:
    assert used("https://api.example", {"HTTPS_PROXY": f"{scheme}://p:1"}) == f"{scheme}://p:1"


def test_a_socks_proxy_says_so() -> None:
    found = proxy_for(urlsplit("https://a"), "socks5://p:1", "here", {})
    assert found is not None
    assert found.socks
