"""The attacker and the target: an account behind a proxy whose rules hide a ConfigMap and a Pod from it, and change another ConfigMap."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kubeloop import blocking
from kubeloop.api.core.v1 import ConfigMap, Container, Namespace, Pod, PodSpec, ServiceAccount
from kubeloop.api.rbac.v1 import PolicyRule, Role, RoleBinding, RoleRef, Subject
from kubeloop.meta import ObjectMeta
from kubeloop.proxy import ProxyOptions, ProxyServer
from tests.attacks.conftest import GOLD, Answered, Thief, no_certificate
from tests.servers import ServerUnderTest

#: Name of the hidden ConfigMap and Pod, which the attacker does not know. It sorts between visible names.
HIDDEN = "m-secret-plan"
#: A name of the same length that no object has.
MISSING = "m-secret-void"
#: The value that the attacker sees where the original is GOLD.
SHOWN = "nothing-to-see"
#: The paths of the attacker's namespace.
HOME = "/api/v1/namespaces/{home}"

#: Hide objects with the label tier=back from the accounts of the namespace, and change values of the ConfigMap "changed".
RULES = """
apiVersion: proxy.kubeloop.dev/v1alpha1
kind: RewriteRule
metadata: {name: hide-back}
spec:
  match:
  - groups: [""]
    resources: [configmaps, pods, pods/log, services]
    labelSelector: tier=back
    userGroups: ["system:serviceaccounts:HOME"]
  actions: [{drop: true}]
  writes: WRITES
---
apiVersion: proxy.kubeloop.dev/v1alpha1
kind: RewriteRule
metadata: {name: change-price}
spec:
  match:
  - groups: [""]
    resources: [configmaps]
    names: [changed]
    userGroups: ["system:serviceaccounts:HOME"]
  actions: [{set: {data.price: SHOWN, metadata.labels.price: SHOWN}}]
  writes: WRITES
"""
#: Rules that hide nothing, so that even the deletion of a collection is possible.
CHANGES_ONLY = RULES[RULES.index("---") :]


@dataclass(frozen=True)
class Proxied:
    """A proxy, the attacker behind it, and another account of the namespace that may do nothing."""

    proxy: ProxyServer
    thief: Thief
    stranger: Thief


#: Opens a proxy with rules in which HOME is the attacker's namespace. ``writes`` is the policy of both rules.
OpenProxy = Callable[..., AbstractContextManager[Proxied]]


@pytest.fixture(scope="session")
def home(server: ServerUnderTest) -> Iterator[tuple[str, str, str]]:
    """A namespace with the objects and accounts: its name, and the tokens of the thief and of the stranger."""
    name = f"attacked-{os.getpid()}"
    administrator = server.administrator
    administrator.create(Namespace(metadata=ObjectMeta(name=name)))
    administrator.create(ServiceAccount(metadata=ObjectMeta(name="default", namespace=name)))
    tokens = [_token(administrator, account, name) for account in ("thief", "stranger")]
    _grant_all(administrator, "thief", name)
    create_objects(administrator, name)
    yield name, tokens[0], tokens[1]
    administrator.delete(Namespace, name)


@pytest.fixture(scope="session")
def proxied(server: ServerUnderTest, home: tuple[str, str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """One proxy for all attacks that read, in a separate thread."""
    with _opened(server, home, tmp_path_factory.mktemp("rules"), RULES, "Deny") as found:
        yield found


@pytest.fixture(scope="session")
def caching(server: ServerUnderTest, home: tuple[str, str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """The same proxy in caching mode."""
    with _opened(server, home, tmp_path_factory.mktemp("rules"), RULES, "Deny", cache=True) as found:
        yield found


@pytest.fixture
def open_proxy(server: ServerUnderTest, home: tuple[str, str, str], tmp_path: Path) -> OpenProxy:
    def opened(rules: str = RULES, *, writes: str = "Deny", cache: bool = False) -> AbstractContextManager[Proxied]:
        return _opened(server, home, tmp_path, rules, writes, cache=cache)

    return opened


@pytest.fixture
def thief(proxied: Proxied) -> Thief:
    """The attacker behind the proxy; it may do everything in its namespace."""
    return proxied.thief


@pytest.fixture
def direct(server: ServerUnderTest, proxied: Proxied) -> Thief:
    """The attacker without the proxy."""
    host, port = _address(server.config.server)
    return replace(proxied.thief, host=host, port=port, tls=no_certificate(server))


def create_objects(administrator: blocking.Client, namespace: str) -> None:
    """Create the objects that the rules hide, change and leave alone."""
    for name, labels in (("a-map", {}), (HIDDEN, {"tier": "back"}), ("z-map", {})):
        metadata = ObjectMeta(name=name, namespace=namespace, labels=labels)
        administrator.create(ConfigMap(metadata=metadata, data={"price": GOLD if labels else "1"}))
    metadata = ObjectMeta(name="changed", namespace=namespace, labels={"price": GOLD})
    administrator.create(ConfigMap(metadata=metadata, data={"price": GOLD, "open": "1"}))
    for name, labels in (("web", {}), (HIDDEN, {"tier": "back"})):
        spec = PodSpec(containers=[Container(name="c", image="i")])
        administrator.create(Pod(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), spec=spec))


def ask_all(thief: Thief, requests: Sequence[tuple[str, str, Mapping[str, str]]]) -> list[Answered]:
    """Return the answers to requests (method, path, headers) that are sent at the same time: some are watches that take a second."""
    places = asyncio.Semaphore(16)

    async def ask(method: str, path: str, headers: Mapping[str, str]) -> Answered:
        async with places:
            return await thief.ask(method, path, headers)

    async def everything() -> list[Answered]:
        return await asyncio.gather(*(ask(*request) for request in requests))

    return asyncio.run(everything())


@contextmanager
def _opened(
    server: ServerUnderTest, home: tuple[str, str, str], folder: Path, rules: str, writes: str, *, cache: bool = False
) -> Iterator[Proxied]:
    name, token, stranger = home
    path = folder / "rules.yaml"
    path.write_text(rules.replace("HOME", name).replace("WRITES", writes).replace("SHOWN", SHOWN))
    with _in_thread(ProxyServer(server.config, ProxyOptions(rules=path, cache=cache))) as proxy:
        host, port = _address(proxy.url)
        thief = Thief(host, port, ssl.create_default_context(cadata=proxy.authority.decode()), token, name, name)
        yield Proxied(proxy, thief, replace(thief, token=stranger))


@contextmanager
def _in_thread(proxy: ProxyServer) -> Iterator[ProxyServer]:
    """Run a proxy until the end of the context."""
    with ThreadPoolExecutor(1) as executor:
        loop = asyncio.new_event_loop()
        running = executor.submit(loop.run_forever)
        try:
            asyncio.run_coroutine_threadsafe(proxy.start(), loop).result()
            yield proxy
        finally:
            asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            running.result()
            loop.close()


def _address(url: str) -> tuple[str, int]:
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    return address.hostname, address.port


def _token(administrator: blocking.Client, name: str, namespace: str) -> str:
    administrator.create(ServiceAccount(metadata=ObjectMeta(name=name, namespace=namespace)))
    return administrator.service_accounts.create_token(name, namespace=namespace, expiration_seconds=3600).status.token


def _grant_all(administrator: blocking.Client, name: str, namespace: str) -> None:
    everything = PolicyRule(api_groups=["*"], resources=["*"], verbs=["*"])
    administrator.create(Role(metadata=ObjectMeta(name=name, namespace=namespace), rules=[everything]))
    administrator.create(
        RoleBinding(
            metadata=ObjectMeta(name=name, namespace=namespace),
            role_ref=RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name=name),
            subjects=[Subject(kind="ServiceAccount", name=name, namespace=namespace)],
        ),
    )
