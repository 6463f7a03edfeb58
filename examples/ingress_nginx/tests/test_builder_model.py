"""Random changes: a builder that follows them has the configuration of a new one."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples.ingress_nginx.ingress.builder import BuilderOptions, IngressBuilder, ObjectRef
from examples.ingress_nginx.tests.objects import ClusterTable, ingress, ingress_class, service, slice_of, tls_secret
from kubeloop.api.networking.v1 import Ingress
from kubeloop.meta import Resource

_HOSTS = ("a.io", "b.io", "www.a.io", "*.b.io", "*")
_PATHS = ("/", "/a", "=/a", "/a/b", "~/a.*")
_SERVICES = ("web", "api")
_SECRETS = {name: tls_secret(name, host) for name, host in (("one", "a.io"), ("two", "b.io"))}
_ANNOTATIONS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"canary": "true", "canary_weight": "20"},
    {"server_alias": "b.io"},
    {"from_to_www_redirect": "true"},
    {"default_backend": "api"},
    {"affinity": "cookie"},
    {"use_regex": "true"},
    {"force_ssl_redirect": "true"},
    {"auth_type": "basic", "auth_secret": "one"},
    {"configuration_snippet": "return 200;"},
)


@st.composite
def _ingresses(draw: st.DrawFn) -> Ingress:
    rules = [
        f"{draw(st.sampled_from(_HOSTS))} {draw(st.sampled_from(_PATHS))} {draw(st.sampled_from(_SERVICES))}:80"
        for _ in range(draw(st.integers(0, 3)))
    ]
    return ingress(
        draw(st.sampled_from(("x", "y", "z"))),
        *rules,
        age=draw(st.integers(0, 3)),
        ingress_class_name=draw(st.sampled_from(("kubeloop", "kubeloop", "other"))),
        tls=draw(st.lists(st.sampled_from(("one a.io", "two b.io", "one", "gone a.io")), max_size=2)),
        default=draw(st.sampled_from(("", "web:80"))),
        **draw(st.sampled_from(_ANNOTATIONS)),
    )


_CHANGES: st.SearchStrategy[Resource | tuple[type[Resource], str, str]] = st.one_of(
    _ingresses(),
    _ingresses(),
    st.sampled_from(_SERVICES).map(service),
    st.builds(slice_of, st.sampled_from(_SERVICES), st.sampled_from(("10.0.0.1", "10.0.0.2")), ready=st.booleans()),
    st.sampled_from(tuple(_SECRETS.values())),
    st.sampled_from(("kubeloop.dev/ingress-controller", "example.com/other")).map(lambda name: ingress_class("other", name)),
)


def _apply(table: ClusterTable, change: Any, delete: bool) -> list[ObjectRef]:
    kind, namespace, name = type(change), change.metadata.namespace or "", change.metadata.name
    if delete:
        return table.delete(kind, namespace, name) if table.get(kind, namespace, name) is not None else []
    return table.set(change)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.lists(st.tuples(_CHANGES, st.booleans()), min_size=1, max_size=4), max_size=8))
def test_a_builder_that_follows_changes_equals_a_new_one(batches: list[list[tuple[Resource, bool]]]) -> None:
    table = ClusterTable()
    options = BuilderOptions(default_service=("shop", "api"), default_certificate=("shop", "two"))
    builder = IngressBuilder(table, options)
    builder.rebuild()
    for batch in batches:
        builder.update([ref for change, delete in batch for ref in _apply(table, change, delete)])
        fresh = IngressBuilder(table, options)
        fresh.rebuild()
        assert builder.configuration == fresh.configuration
        assert builder.problems == fresh.problems
        assert builder.ignored == fresh.ignored
