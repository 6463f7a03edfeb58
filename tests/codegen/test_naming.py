import keyword
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.codegen.naming import ModuleName, camel_case, class_name, field_name, field_names, module_names, snake_case


@pytest.mark.parametrize(
    ("wire", "name"),
    [
        pytest.param("nodeName", "node_name", id="words are split at capitals"),
        pytest.param("podIP", "pod_ip", id="an abbreviation stays one word"),
        pytest.param("podIPs", "pod_ips", id="a plural s belongs to its abbreviation"),
        pytest.param("nonResourceURLs", "non_resource_urls", id="a long abbreviation keeps its plural s"),
        pytest.param("setHostnameAsFQDN", "set_hostname_as_fqdn", id="an abbreviation at the end"),
        pytest.param("insecureSkipTLSVerify", "insecure_skip_tls_verify", id="an abbreviation in the middle"),
        pytest.param("targetCPUUtilizationPercentage", "target_cpu_utilization_percentage", id="an abbreviation before a capital"),
        pytest.param("openAPIV3Schema", "open_api_v3_schema", id="a version is a separate word"),
        pytest.param("x-kubernetes-list-type", "x_kubernetes_list_type", id="dashes become underscores"),
        pytest.param("$ref", "ref", id="signs in front are dropped"),
    ],
)
def test_snake_case(wire: str, name: str) -> None:
    assert snake_case(wire) == name


@pytest.mark.parametrize(
    ("wire", "name"),
    [
        pytest.param("from", "from_", id="a keyword gets an underscore"),
        pytest.param("bool", "bool_", id="a builtin that annotations use gets an underscore"),
        pytest.param("type", "type", id="a builtin that annotations do not use stays"),
        pytest.param("1st", "field_1st", id="a digit in front gets a word before it"),
        pytest.param("$", "field", id="a name without letters is still a name"),
    ],
)
def test_field_name(wire: str, name: str) -> None:
    assert field_name(wire) == name


def test_two_wire_names_never_share_an_attribute() -> None:
    assert field_names(["foo-bar", "fooBar", "foo_bar"]) == {"foo-bar": "foo_bar", "fooBar": "foo_bar_", "foo_bar": "foo_bar__"}


@given(st.lists(st.text(st.characters(codec="ascii"), min_size=1, max_size=12), unique=True, max_size=6))
def test_any_wire_names_become_different_python_names(wires: list[str]) -> None:
    names = field_names(wires)
    assert len(set(names.values())) == len(wires)
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in names.values())


@given(st.from_regex(re.compile(r"[a-z][a-z0-9_]{0,15}", re.ASCII), fullmatch=True).filter(lambda name: not keyword.iskeyword(name)))
def test_camel_case_is_what_msgspec_writes(name: str) -> None:
    struct = msgspec.defstruct("Probe", [(name, int)], rename="camel")
    assert camel_case(name) == struct.__struct_encode_fields__[0]


def test_the_segment_before_the_version_names_the_package() -> None:
    names = [
        "io.k8s.api.rbac.v1.Role",
        "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
        "io.k8s.apimachinery.pkg.version.Info",
        "com.example.stable.v1beta1.CronTab",
    ]
    assert list(module_names(names).values()) == [
        ModuleName("rbac", "v1"),
        ModuleName("apiregistration", "v1"),
        ModuleName("version", ""),
        ModuleName("stable", "v1beta1"),
    ]


def test_packages_that_would_clash_take_all_their_segments_but_kubernetes_own() -> None:
    names = ["io.k8s.api.apps.v1.Deployment", "com.example.apps.v1.Thing", "org.apps.v1.Thing"]
    assert [module.package for module in module_names(names).values()] == ["apps", "com_example_apps", "org_apps"]


def test_a_class_never_hides_a_builtin() -> None:
    assert class_name("com.example.v1.Exception") == "Exception_"
    assert class_name("com.example.v1.Widget") == "Widget"
