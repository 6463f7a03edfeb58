"""Names, labels and annotations: valid ones pass, others fail in Kubernetes' words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubeloop.meta import names

SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize(
    ("check", "text", "faults"),
    [
        pytest.param(names.dns1123_subdomain, "web-0.example", [], id="a subdomain may have dots"),
        pytest.param(names.dns1123_subdomain, "Web", [SUBDOMAIN_RULE], id="a subdomain has no capitals"),
        pytest.param(names.dns1123_subdomain, "a" * 254, ["must be no more than 253 characters"], id="a subdomain has a limit"),
        pytest.param(names.dns1123_label, "a.b", ["must not contain dots"], id="a label has no dots, and says just that"),
        pytest.param(names.dns1123_label, "-a", [LABEL_RULE], id="a label does not begin with a dash"),
        pytest.param(names.dns1035_label, "1a", None, id="a DNS-1035 label does not begin with a digit"),
        pytest.param(names.qualified_name, "example.com/web", [], id="a qualified name has one prefix"),
        pytest.param(names.qualified_name, "/web", ["prefix part must be non-empty"], id="a prefix is not empty"),
        pytest.param(names.qualified_name, "a" * 64, ["name part must be no more than 63 bytes"], id="the name part has a limit"),
        pytest.param(names.qualified_name, "a/b/c", None, id="a qualified name has at most one slash"),
        pytest.param(names.label_value, "", [], id="a label's value may be empty"),
        pytest.param(names.label_value, "a_b.C", [], id="a label's value may have dots and capitals"),
        pytest.param(names.label_value, "b ", None, id="a label's value has no blanks"),
        pytest.param(names.label_value, "b\n", None, id="not even a line's end"),
        pytest.param(names.annotation_key, "Example.com/Web", [], id="an annotation's key may have capitals in its prefix"),
        pytest.param(names.config_key, "..a", ["must not start with '..'"], id="a config key is no way up"),
        pytest.param(names.path_segment, "a/b", ["may not contain '/'"], id="a path segment has no slash"),
        pytest.param(names.path_segment, "..", ["may not be '..'"], id="a path segment is no way up"),
        pytest.param(names.port_name, "http-", ["must not begin or end with a hyphen"], id="a port's name ends with no hyphen"),
        pytest.param(names.port_name, "123", ["must contain at least one letter (a-z)"], id="a port's name has a letter"),
        pytest.param(names.relaxed_environment_name, "a b", [], id="a variable's name may have blanks"),
        pytest.param(names.wildcard_dns1123_subdomain, "*.example.com", [], id="a wildcard stands for the first label"),
        pytest.param(names.percent, "5", None, id="a percentage ends with its sign"),
    ],
)
def test_a_name_is_checked(check: Callable[[str], list[str]], text: str, faults: list[str] | None) -> None:
    found = check(text)
    assert found == faults if faults is not None else len(found) == 1


def test_a_prefix_of_a_generated_name_may_end_with_a_dash() -> None:
    assert names.dns1123_subdomain("web-", prefix=True) == []
    assert names.dns1123_subdomain("web-") == [SUBDOMAIN_RULE]


def test_ports_are_between_1_and_65535() -> None:
    assert names.port_number(65535) == []
    assert names.port_number(0) == ["must be between 1 and 65535, inclusive"]


def test_annotations_are_counted_in_bytes() -> None:
    assert names.annotations_size({"a": "ü"}) == 3


def test_a_caller_may_change_the_answer_about_a_key() -> None:
    first = names.qualified_name("-refused")
    expected = list(first)
    first.clear()
    assert names.qualified_name("-refused") == expected != []
