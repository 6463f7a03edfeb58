"""What ``@custom_resource`` refuses, so that no server has to."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeloop.meta import Model, Resource, custom_resource, kind_info


def declare(api_version: Any = "example.com/v1", *, base: type = Resource, **names: Any) -> type[Resource]:
    cls: Any = type(base)("Foo", (base,), {})
    return custom_resource(api_version, **{"plural": "foos"} | names)(cls)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(
            {"api_version": "example.com"},
            'api_version="example.com": there is no version in it: name group and version, such as "example.com/v1"',
            id="a group alone",
        ),
        pytest.param({"api_version": ""}, 'api_version="": there is no version', id="nothing"),
        pytest.param({"api_version": "example.com/"}, "there is no version after the slash", id="no version after the slash"),
        pytest.param({"api_version": "/v1"}, "there is no group before the slash", id="no group before the slash"),
        pytest.param({"api_version": "Example.com/v1"}, "the group must be lower case letters", id="capitals in the group"),
        pytest.param({"api_version": "a/b/c"}, "the group must be", id="two slashes"),
        pytest.param({"api_version": "x" * 64 + ".com/v1"}, "the group must be", id="a long part of the group"),
        pytest.param({"api_version": ".".join(["x" * 60] * 5) + "/v1"}, "the group must be", id="a long group"),
        pytest.param({"api_version": "example.com/V1"}, "the version must be lower case", id="capitals in the version"),
        pytest.param(
            {"plural": "Foos"},
            'plural="Foos": must be lower case letters, digits and hyphens, at most 63, beginning with a letter, such as "foos"',
            id="capitals in the plural",
        ),
        pytest.param({"plural": ""}, 'plural="": must be', id="no plural"),
        pytest.param({"plural": "my foos"}, 'such as "my-foos"', id="a blank in the plural"),
        pytest.param({"plural": "x" * 64}, "at most 63", id="a long plural"),
        pytest.param({"singular": "Foo"}, 'singular="Foo": must be', id="capitals in the singular"),
        pytest.param({"short_names": ("fo", "F O")}, 'short_names="F O": must be', id="a short name"),
        pytest.param({"categories": ("All",)}, 'categories="All": must be', id="a category"),
        pytest.param(
            {"kind": "my foo"},
            'kind="my foo": must be letters and digits, at most 63, beginning with a letter, such as "MyFoo"',
            id="a blank in the kind",
        ),
        pytest.param({"kind": "Größe"}, 'kind="Größe": must be letters and digits', id="letters of other languages"),
    ],
)
def test_a_name_that_no_server_takes_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        declare(**arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(
            {"api_version": Resource},
            '@custom_resource needs group, version and plural: @custom_resource("example.com/v1", plural="resources")',
            id="no text",
        ),
        pytest.param({"short_names": "fo"}, "short_names='fo': must be a tuple of names, such as (\"fo\",)", id="a text for a tuple"),
        pytest.param({"categories": (3,)}, "categories=(3,): must be text", id="a number for a text"),
        pytest.param({"base": Model}, "@custom_resource: Foo is not a Resource; write: class Foo(Resource)", id="another base"),
    ],
)
def test_an_argument_of_another_type_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        declare(**arguments)


@pytest.mark.parametrize("api_version", ["v1", "apps/v1", "example.com/v1beta1", "a-b.example.com/v2024-01"])
def test_these_are_taken(api_version: str) -> None:
    cls = declare(api_version, plural="my-foos", kind="MyFoo", short_names=("mf",), categories=("all",))
    assert (cls.api_version, cls.kind, kind_info(cls).singular) == (api_version, "MyFoo", "myfoo")
