import pytest
from msgspec import UNSET

from kubeloop.meta.kinds import GroupVersion, GroupVersionKind
from kubeloop.schema import TypeSchema, builtin, openapi_paths, openapi_paths_of

POD = GroupVersionKind("", "v1", "Pod")


def test_every_definition_decodes_and_every_reference_leads_to_one() -> None:
    schemas = builtin()
    names = list(schemas.names())
    assert len(names) == 771

    def references(node: TypeSchema) -> list[str]:
        below = [*node.properties.values(), *(child for child in (node.items, node.values) if child)]
        return [node.ref, *(ref for child in below for ref in references(child))]

    assert {ref for name in names for ref in references(schemas.definition(name)) if ref} <= set(names)


def test_a_definition_is_the_same_object_each_time() -> None:
    assert builtin().kind(POD) is builtin().definition("io.k8s.api.core.v1.Pod")


def test_a_missing_definition_is_named_in_the_error() -> None:
    with pytest.raises(KeyError, match=r"io\.example\.Missing"):
        builtin().definition("io.example.Missing")
    assert "io.example.Missing" not in builtin()


def test_a_kind_that_is_not_built_in_has_no_schema() -> None:
    assert builtin().kind(GroupVersionKind("example.com", "v1", "Foo")) is None


def test_a_reference_is_followed_and_keeps_its_own_default() -> None:
    schemas = builtin()
    pod = schemas.kind(POD)
    assert pod is not None
    spec = pod.properties["spec"]
    assert spec.ref == "io.k8s.api.core.v1.PodSpec"
    assert spec.default == {}
    assert schemas.resolve(spec).required == ("containers",)
    assert schemas.resolve(pod.properties["kind"]) is pod.properties["kind"]


def test_lists_know_how_they_merge() -> None:
    container = builtin().definition("io.k8s.api.core.v1.Container")
    ports = container.properties["ports"]
    assert (ports.list_type, ports.list_map_keys) == ("map", ("containerPort", "protocol"))
    assert (ports.patch_strategy, ports.patch_merge_key) == ("merge", "containerPort")
    assert container.properties["command"].list_type == "atomic"
    volumes = builtin().definition("io.k8s.api.core.v1.PodSpec").properties["volumes"]
    assert volumes.patch_strategy == "merge,retainKeys"


def test_defaults_and_enums_come_from_version_3() -> None:
    protocol = builtin().definition("io.k8s.api.core.v1.ServicePort").properties["protocol"]
    assert protocol.default == "TCP"
    assert protocol.enum == ["SCTP", "TCP", "UDP"]
    assert builtin().definition("io.k8s.api.core.v1.ServicePort").properties["name"].default is UNSET


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        pytest.param("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity", id="a quantity says so"),
        pytest.param("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "int-or-string", id="an int-or-string says so"),
        pytest.param("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "date-time", id="a time is a date-time"),
    ],
)
def test_special_scalars(name: str, format_: str) -> None:
    assert builtin().definition(name).format == format_


def test_no_definition_carries_a_description() -> None:
    schemas = builtin()
    assert not any(schemas.definition(name).description for name in schemas.names())


def test_resources_are_what_a_default_server_serves() -> None:
    resources = {(str(info.gvr.group_version), info.gvr.resource): info for info in builtin().resources()}
    pods = resources["v1", "pods"]
    assert (pods.gvk, pods.singular, pods.short_names, pods.categories, pods.namespaced) == (POD, "pod", ("po",), ("all",), True)
    assert "spec.nodeName" in pods.selectable_fields
    scale = resources["apps/v1", "deployments"].subresource("scale")
    assert scale is not None
    assert (scale.kind, scale.verbs) == (GroupVersionKind("autoscaling", "v1", "Scale"), ("get", "patch", "update"))
    assert pods.subresource("scale") is None
    assert not resources["v1", "nodes"].namespaced
    assert all(info.served for info in builtin().resources())


def test_alpha_and_beta_resources_are_known_but_off() -> None:
    off = {str(info.gvr.group_version) for info in builtin().all_resources() if not info.served}
    assert "resource.k8s.io/v1beta2" in off
    assert "apps/v1" not in off
    claim = next(info for info in builtin().all_resources() if str(info.gvr) == "resource.k8s.io/v1beta2, Resource=resourceclaims")
    assert claim.namespaced
    assert [sub.name for sub in claim.subresources] == ["status"]


def test_every_resource_has_a_kind_with_a_schema_except_connect_options() -> None:
    schemas = builtin()
    for info in schemas.all_resources():
        assert schemas.kind(info.gvk) is not None, info
        for sub in info.subresources:
            assert schemas.kind(sub.kind) is not None or sub.name in ("proxy", "exec", "attach", "portforward"), sub


def test_groups_stand_in_discovery_order_with_the_preferred_version_first() -> None:
    groups = builtin().groups()
    assert [group.name for group in groups[:3]] == ["", "apiregistration.k8s.io", "apps"]
    assert next(group for group in groups if group.name == "autoscaling").preferred == GroupVersion("autoscaling", "v2")


def test_kinds_lead_to_definitions() -> None:
    kinds = dict(builtin().kinds())
    assert kinds[GroupVersionKind("rbac.authorization.k8s.io", "v1", "Role")] == "io.k8s.api.rbac.v1.Role"
    assert builtin().kind_name(POD) == "io.k8s.api.core.v1.Pod"


def test_openapi_paths_are_kept_for_each_group_version() -> None:
    assert "apis/apps/v1" in openapi_paths()
    operation = openapi_paths_of("api/v1")["/api/v1/namespaces/{namespace}/pods/{name}"]["get"]
    assert operation["operationId"] == "readCoreV1NamespacedPod"
    assert "description" not in operation
    assert openapi_paths_of("api/v1") is not openapi_paths_of("api/v1")
