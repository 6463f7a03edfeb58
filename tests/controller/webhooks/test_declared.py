"""What the decorators take and refuse, and the configurations that they give."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.admissionregistration.v1 import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from kubeloop.api.core.v1 import Pod
from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.webhooks import AdmissionRequest, HookOptions, Webhooks
from kubeloop.controller.webhooks.configurations import Service, Url
from kubeloop.meta import ConfigError, LabelSelector, Unstructured
from tests.controller.webhooks.foos import Foo, FooV2


def one(foo: Foo) -> None:
    """A hook."""


def two(foo: Foo, request: AdmissionRequest[Foo]) -> None:
    """A hook."""


def three(foo: Foo, request: AdmissionRequest[Foo], more: int) -> None:
    """No hook."""


def none() -> None:
    """No hook."""


def of_pods(pod: Pod) -> None:
    """A hook of another kind."""


def unresolved(foo: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821 - a name that does not resolve
    """A hook."""


class WithoutMethods:
    """No hook."""


REFUSED: list[Any] = [
    pytest.param(three, {}, "takes the object, and after it the request", id="a third argument"),
    pytest.param(none, {}, "takes the object", id="no argument"),
    pytest.param(of_pods, {}, "takes a Pod, but is declared for Foo", id="another kind"),
    pytest.param(one, {"operations": ["PATCH"]}, "some of CREATE, UPDATE, DELETE, CONNECT", id="an unknown operation"),
    pytest.param(one, {"operations": "CREATE"}, "it is a list", id="operations that are no list"),
    pytest.param(one, {"operations": []}, "it is a list", id="no operation"),
    pytest.param(one, {"operations": ["CONNECT"]}, "body=", id="a connection without the kind of its options"),
    pytest.param(one, {"name": "check"}, "three parts", id="a name of one part"),
    pytest.param(one, {"name": "Check.example.com"}, "DNS name", id="a name in upper case"),
    pytest.param(one, {"path": "check"}, "slash", id="a path without a slash"),
    pytest.param(one, {"path": "/check?x=1"}, "query", id="a path with a query"),
    pytest.param(one, {"path": "/convert"}, "conversions", id="the path of conversions"),
    pytest.param(one, {"timeout_seconds": 31}, "1 to 30", id="a timeout that Kubernetes does not take"),
    pytest.param(one, {"reinvocation_policy": "IfNeeded"}, "only mutating", id="a validating hook that is called again"),
    pytest.param(WithoutMethods, {}, "has no method", id="a class without a method for an operation"),
    pytest.param(7, {}, "neither a function nor a class", id="a number"),
]


@pytest.mark.parametrize(("target", "options", "text"), REFUSED)
def test_what_cannot_work_is_refused_where_it_is_declared(target: Any, options: HookOptions, text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        Webhooks().validating(Foo, **options)(target)


def test_a_mutating_hook_cannot_change_an_object_that_is_being_deleted() -> None:
    with pytest.raises(DeclarationError, match="finalizer"):
        Webhooks().mutating(Foo, operations=["DELETE"])(one)


def test_a_kind_without_a_plural_is_refused() -> None:
    with pytest.raises(DeclarationError, match="plural="):
        Webhooks().validating(Unstructured.for_kind("example.com/v1", "Foo"))(lambda foo: None)


def test_something_that_is_no_kind_is_refused() -> None:
    kind: Any = dict
    with pytest.raises(DeclarationError, match="not a kind"):
        Webhooks().validating(kind)(one)


def test_two_hooks_of_one_name_are_refused() -> None:
    hooks = Webhooks()
    hooks.validating(Foo)(one)
    with pytest.raises(DeclarationError, match="two webhooks have the name"):
        hooks.validating(Foo)(one)


def test_annotations_that_do_not_resolve_are_no_fault() -> None:
    hooks = Webhooks()
    hooks.validating(Foo)(unresolved)
    assert len(hooks.hooks) == 1


def test_a_decorated_function_stays_what_it_was() -> None:
    assert Webhooks().validating(Foo)(two) is two


def test_an_unknown_hook_is_named_with_the_known_ones() -> None:
    hooks = Webhooks()
    hooks.validating(Foo)(one)
    with pytest.raises(LookupError, match=r"one\.foos\.example\.com"):
        hooks.hook("other")


def test_nothing_declared_is_nothing_to_serve() -> None:
    with pytest.raises(DeclarationError, match="no webhook is declared"):
        Webhooks().check()


def all_options() -> Webhooks:
    hooks = Webhooks()
    hooks.mutating(
        Foo,
        operations=["CREATE"],
        name="set.foos.example.com",
        path="/set",
        failure_policy="Ignore",
        side_effects="NoneOnDryRun",
        match_policy="Exact",
        scope="Namespaced",
        namespace_selector=LabelSelector(match_labels={"a": "b"}),
        object_selector=LabelSelector(match_labels={"c": "d"}),
        match_conditions={"not-mine": "request.userInfo.username != 'me'"},
        timeout_seconds=3,
        reinvocation_policy="IfNeeded",
    )(one)
    hooks.validating(Pod, subresource="status")(of_pods)
    return hooks


def test_the_configurations_say_what_was_declared() -> None:
    place = Service("ops", "hooks", port=8443)
    mutating, validating = all_options().configurations("foo-operator", place, ca=b"PEM")
    assert isinstance(mutating, MutatingWebhookConfiguration)
    assert isinstance(validating, ValidatingWebhookConfiguration)
    assert mutating.to_dict()["webhooks"] == [
        {
            "name": "set.foos.example.com",
            "admissionReviewVersions": ["v1", "v1beta1"],
            "clientConfig": {"caBundle": "UEVN", "service": {"namespace": "ops", "name": "hooks", "port": 8443, "path": "/set"}},
            "rules": [
                {
                    "apiGroups": ["example.com"],
                    "apiVersions": ["v1"],
                    "resources": ["foos"],
                    "operations": ["CREATE"],
                    "scope": "Namespaced",
                }
            ],
            "failurePolicy": "Ignore",
            "sideEffects": "NoneOnDryRun",
            "matchPolicy": "Exact",
            "namespaceSelector": {"matchLabels": {"a": "b"}},
            "objectSelector": {"matchLabels": {"c": "d"}},
            "matchConditions": [{"name": "not-mine", "expression": "request.userInfo.username != 'me'"}],
            "timeoutSeconds": 3,
            "reinvocationPolicy": "IfNeeded",
        }
    ]
    assert validating.webhooks[0].name == "of-pods.pods.core"
    assert validating.webhooks[0].rules[0].resources == ["pods/status"]
    assert validating.webhooks[0].rules[0].api_groups == [""]


def test_a_url_is_completed_by_the_path() -> None:
    mutating, _ = all_options().configurations("foo-operator", Url("https://127.0.0.1:9443/"))
    assert mutating.webhooks[0].client_config.url == "https://127.0.0.1:9443/set"
    assert mutating.webhooks[0].client_config.ca_bundle is None


@pytest.mark.parametrize("base", ["http://a", "https://a/b", "a:9443"])
def test_a_place_is_an_https_address_without_a_path(base: str) -> None:
    with pytest.raises(ConfigError, match="https://HOST:PORT"):
        Url(base)


def test_kinds_with_converters_are_asked_to_be_converted_here() -> None:
    hooks = Webhooks()
    hooks.conversion(Foo, FooV2)(lambda foo: FooV2())
    ((name, conversion),) = hooks.definitions(Service("ops", "hooks")).items()
    assert name == "foos.example.com"
    assert conversion(b"PEM") == {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {"caBundle": "UEVN", "service": {"namespace": "ops", "name": "hooks", "port": 443, "path": "/convert"}},
            "conversionReviewVersions": ["v1", "v1beta1"],
        },
    }


def test_a_definition_is_named_by_the_plural_that_any_class_of_the_kind_knows() -> None:
    hooks = Webhooks()
    hooks.conversion(Unstructured.for_kind("example.com/v3", "Bar"), Unstructured.for_kind("example.com/v4", "Bar"))(lambda bar: bar)
    with pytest.raises(DeclarationError, match="plural"):
        hooks.definitions(Service("ops", "hooks"))
    hooks.conversion(Unstructured.for_kind("example.com/v4", "Bar", plural="bars"), Unstructured.for_kind("example.com/v3", "Bar"))(
        lambda bar: bar
    )
    assert list(hooks.definitions(Service("ops", "hooks"))) == ["bars.example.com"]
