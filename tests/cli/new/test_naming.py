"""Names of a project and its kinds: which follow from others, and which are refused."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from kubeloop.cli.new.naming import kind_names_of, kind_of, names_of, plural_of
from kubeloop.meta import ConfigError


@pytest.mark.parametrize(
    ("name", "kind", "plural", "module"),
    [
        pytest.param("web-operator", "Web", "webs", "web_operator", id="the word operator is not of the kind"),
        pytest.param("message-box-controller", "MessageBox", "messageboxes", "message_box_controller", id="words are joined"),
        pytest.param("policy2", "Policy2", "policy2s", "policy2", id="one word stays"),
    ],
)
def test_the_kind_comes_from_the_name(name: str, kind: str, plural: str, module: str) -> None:
    names = names_of(name)
    found = kind_names_of(kind_of(name), "", "example.com", ["v1"])
    assert (found.kind, found.plural, names.module, names.image) == (kind, plural, module, f"{name}:0.1.0")


@pytest.mark.parametrize(
    ("singular", "plural"),
    [("policy", "policies"), ("key", "keys"), ("box", "boxes"), ("match", "matches"), ("class", "classes"), ("foo", "foos")],
)
def test_plurals_are_english(singular: str, plural: str) -> None:
    assert plural_of(singular) == plural


REFUSED = [
    pytest.param(
        {"name": "Web_Operator"}, 'NAME "Web_Operator": must be lower case .* such as web-operator', id="capitals and underscores"
    ),
    pytest.param({"name": "1st"}, "such as st", id="a digit at the beginning"),
    pytest.param({"name": "a" * 41}, "at most 40 characters", id="a name that is too long for the names derived from it"),
    pytest.param({"name": "class"}, "Python has a module or word of that name; try class-operator", id="a word of Python"),
    pytest.param({"name": "operator"}, "try operator-operator", id="another module of Python"),
    pytest.param({"name": "json"}, "Python has a module", id="a module of Python"),
    pytest.param({"name": "yaml"}, "Python has a module", id="a module of a package that is installed"),
    pytest.param({"name": "test"}, "Python has a module", id="the package of Python's own tests"),
    pytest.param({"kind": "web"}, '--kind "web": must be in CamelCase, .* such as Web', id="a kind in lower case"),
    pytest.param(
        {"kind": "Deployment"}, "uses that name for something else; choose another, such as MyDeployment", id="a kind of the code"
    ),
    pytest.param({"kind": "Ready"}, "uses that name", id="a variable of the code"),
    pytest.param({"kind": "Class"}, "uses that name", id="a kind that is a word of Python"),
    pytest.param({"plural": "Webs"}, '--plural "Webs": .* such as webs', id="a plural with capitals"),
    pytest.param({"group": "example"}, "must be a domain that you own", id="a group that is no domain"),
    pytest.param({"group": "web.k8s.io"}, "belongs to Kubernetes", id="a group of Kubernetes"),
    pytest.param({"version": "1"}, '--version "1": must be as v1alpha1', id="a version without its v"),
    pytest.param({"image": "web"}, '--image "web": must be NAME:TAG', id="an image without a tag"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_a_name_that_is_not_allowed_is_refused_with_an_allowed_one(options: dict[str, str], words: str) -> None:
    given = {"name": "web-operator", "kind": "Web", "plural": "", "group": "example.com", "version": "v1", "image": "", **options}

    def everything() -> None:
        names_of(given["name"], image=given["image"])
        kind_names_of(given["kind"], given["plural"], given["group"], [given["version"]])

    with pytest.raises(ConfigError, match=words):
        everything()


def test_a_function_or_fixture_of_the_tests_is_never_named_after_the_kind() -> None:
    """A kind may be called Len or Test: its functions must not hide those of Python, nor be taken for tests."""
    template = (files("kubeloop.cli.new") / "template" / "kind" / "tests" / "test_@lower@.py.tmpl").read_text()
    assert set(re.findall(r"def \w*@@lower@@|\w*@@lower@@ =|\w*@@lower@@:", template)) == set()
