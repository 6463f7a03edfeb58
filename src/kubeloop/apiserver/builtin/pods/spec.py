"""Validates the spec of pods and templates. Source: ValidatePodSpec, validatePodMetadataAndSpec, ValidatePodTemplateSpec."""

from __future__ import annotations

from kubeloop.apiserver.builtin.pods import containers
from kubeloop.apiserver.builtin.pods.containers import PodContext
from kubeloop.apiserver.builtin.pods.options import PodOptions, all_containers, deletion_cost_fits
from kubeloop.apiserver.builtin.pods.ports import check_host_network_ports
from kubeloop.apiserver.builtin.pods.references import MIRROR, claim_names, validate_resource_claims
from kubeloop.apiserver.builtin.pods.resources import validate_container_resources, validate_pod_resources
from kubeloop.apiserver.builtin.pods.scheduling import (
    validate_affinity,
    validate_scheduling_gates,
    validate_tolerations,
    validate_topology_spread,
)
from kubeloop.apiserver.builtin.pods.security import (
    check_profiles_match,
    validate_app_armor_annotations,
    validate_pod_security,
    validate_seccomp_annotations,
)
from kubeloop.apiserver.builtin.pods.volumes import validate_volumes
from kubeloop.apiserver.builtin.pods.windows import check_host_process, check_linux_pod, check_windows_pod
from kubeloop.apiserver.validation.formats import (
    MAX_INT32,
    check_one_of,
    each,
    validate_dns_label_field,
    validate_ip_address,
    validate_subdomain_field,
    validate_subdomain_with_underscore,
)
from kubeloop.apiserver.validation.metadata import validate_annotation_map, validate_labels
from kubeloop.meta.field_error import Errors, forbidden, invalid, not_found, required, too_long
from kubeloop.meta.names import in_range, qualified_name
from kubeloop.types import JSONObject

# Names, DNS and namespaces shared with the host. Source: validatePodDNSConfig, validateHostUsers, validatePodHostName.


def validate_dns_config(path: str, config: JSONObject | None, policy: str) -> Errors:
    """Validate the DNS configuration."""
    if policy == "None":
        if config is None:
            yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            yield required(f"{path}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
            return
    if config is None:
        return
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > 3:
        yield invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers")
    for index, server in enumerate(servers):
        yield from each(f"{path}.nameservers[{index}]", server, validate_ip_address(server))
    if len(searches) > 32:
        yield invalid(f"{path}.searches", searches, "must not have more than 32 search paths")
    if len(" ".join(searches)) > 2048:
        yield invalid(f"{path}.searches", searches, "must not have more than 2048 characters (including spaces) in the search list")
    for index, search in enumerate(searches):
        if search != ".":
            plain = search.removesuffix(".")
            yield from each(f"{path}.searches[{index}]", plain, validate_subdomain_with_underscore(plain))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required(f"{path}.options[{index}]", "must not be empty")


def validate_host_aliases(path: str, aliases: list[JSONObject]) -> Errors:
    """Validate host aliases."""
    for index, alias in enumerate(aliases):
        address = alias.get("ip", "")
        yield from each(f"{path}[{index}].ip", address, validate_ip_address(address))
        for name_at, name in enumerate(alias.get("hostnames") or ()):
            yield from validate_subdomain_field(f"{path}[{index}].hostnames[{name_at}]", name)


def check_host_users(path: str, spec: JSONObject) -> Errors:
    """Check that a pod with a user namespace shares no other namespace with the host."""
    if spec.get("hostUsers") is not False:
        return
    message = "when `hostUsers` is false"
    for name, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(name):
            yield forbidden(f"{path}.{shown}", message)
    for container, here in all_containers(spec, path):
        if container.get("volumeDevices"):
            yield forbidden(f"{here}.volumeDevices", message)


def validate_host_name(path: str, spec: JSONObject) -> Errors:
    """Validate the host name."""
    name = spec.get("hostnameOverride")
    if name is None:
        return
    here = f"{path}.hostnameOverride"
    if spec.get("setHostnameAsFQDN"):
        yield forbidden(here, "may not be specified when setHostnameAsFQDN is true")
    if spec.get("hostNetwork"):
        yield forbidden(here, "may not be specified when hostNetwork is true")
    if len(name.encode()) > 64:
        yield too_long(here, 64)
    yield from validate_subdomain_field(here, name)


def validate_pod_spec(path: str, spec: JSONObject, metadata: JSONObject | None, options: PodOptions) -> Errors:
    """Validate a pod spec.

    Args:
        path: Path of the spec.
        spec: The spec.
        metadata: Metadata of a pod; None for templates.
        options: Options of the validation.

    Returns:
        The errors.
    """
    if spec.get("terminationGracePeriodSeconds") is None:
        yield required(f"{path}.terminationGracePeriodSeconds")
    known, errors = validate_volumes(f"{path}.volumes", spec.get("volumes") or [], metadata, options)
    yield from errors
    pod = PodContext(spec, options, known, claim_names(spec))
    yield from validate_resource_claims(f"{path}.resourceClaims", spec.get("resourceClaims") or [], metadata)
    yield from containers.validate_containers(f"{path}.containers", pod)
    yield from containers.validate_init_containers(f"{path}.initContainers", pod)
    yield from containers.validate_ephemeral_containers(f"{path}.ephemeralContainers", pod)
    yield from validate_pod_resources(f"{path}.resources", spec, pod.claims, options)
    yield from check_host_network_ports(path, spec, is_pod=options.is_pod)
    yield from _policies(path, spec)
    yield from validate_labels(f"{path}.nodeSelector", spec.get("nodeSelector"))
    yield from validate_pod_security(f"{path}.securityContext", spec, options)
    yield from validate_affinity(f"{path}.affinity", spec.get("affinity"), options)
    yield from validate_dns_config(f"{path}.dnsConfig", spec.get("dnsConfig"), spec.get("dnsPolicy", ""))
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        yield from each(f"{path}.readinessGates[{index}].conditionType", kind, qualified_name(kind))
    yield from validate_scheduling_gates(f"{path}.schedulingGates", spec.get("schedulingGates") or [])
    yield from validate_topology_spread(f"{path}.topologySpreadConstraints", spec.get("topologySpreadConstraints") or [], options)
    yield from check_host_process(path, spec)
    yield from check_host_users(path, spec)
    yield from validate_host_name(path, spec)
    yield from _names(path, spec)
    yield from _rest(path, spec, options)
    yield from _file_key_volumes(path, spec)


def _policies(path: str, spec: JSONObject) -> Errors:
    for name, known in (
        ("restartPolicy", ("Always", "OnFailure", "Never")),
        ("dnsPolicy", ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")),
    ):
        if not spec.get(name):
            yield required(f"{path}.{name}")
        else:
            yield from check_one_of(f"{path}.{name}", spec[name], known)


def _names(path: str, spec: JSONObject) -> Errors:
    for name in ("serviceAccountName", "nodeName"):
        if spec.get(name):
            yield from validate_subdomain_field(f"{path}.{name}", spec[name])
    seconds = spec.get("activeDeadlineSeconds")
    if seconds is not None:
        yield from each(f"{path}.activeDeadlineSeconds", seconds, in_range(seconds, 1, MAX_INT32))
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            yield from validate_dns_label_field(f"{path}.{name}", spec[name])


def _rest(path: str, spec: JSONObject, options: PodOptions) -> Errors:
    yield from validate_tolerations(f"{path}.tolerations", spec.get("tolerations") or [])
    yield from validate_host_aliases(f"{path}.hostAliases", spec.get("hostAliases") or [])
    if spec.get("priorityClassName"):
        yield from validate_subdomain_field(f"{path}.priorityClassName", spec["priorityClassName"])
    if spec.get("runtimeClassName") is not None:
        yield from validate_subdomain_field(f"{path}.runtimeClassName", spec["runtimeClassName"])
    if (policy := spec.get("preemptionPolicy")) is not None:
        if policy:
            yield from check_one_of(f"{path}.preemptionPolicy", policy, ("PreemptLowerPriority", "Never"))
        else:
            yield required(f"{path}.preemptionPolicy")
    if spec.get("overhead"):
        yield from validate_container_resources(f"{path}.overhead", {"limits": spec["overhead"]}, set(), options)
    if (system := spec.get("os")) is not None:
        yield from _operating_system(path, spec, system.get("name", ""))
    if (group := spec.get("schedulingGroup")) is not None:
        if group.get("podGroupName") is None:
            yield invalid(f"{path}.schedulingGroup.podGroupName", None, "must specify one of: `podGroupName`")
        else:
            yield from validate_subdomain_field(f"{path}.schedulingGroup.podGroupName", group["podGroupName"])


def _operating_system(path: str, spec: JSONObject, name: str) -> Errors:
    if not name:
        yield required(f"{path}.os.name")
    elif name == "linux":
        yield from check_linux_pod(path, spec)
    elif name == "windows":
        yield from check_windows_pod(path, spec)
    else:
        yield from check_one_of(f"{path}.os", name, ("linux", "windows"))


def _file_key_volumes(path: str, spec: JSONObject) -> Errors:
    """Check that environment variables from files use emptyDir volumes."""
    known = {volume.get("name", ""): volume for volume in spec.get("volumes") or ()}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            for variable_at, variable in enumerate(container.get("env") or ()):
                reference = (variable.get("valueFrom") or {}).get("fileKeyRef")
                if reference is None:
                    continue
                here, name = f"{path}.{kind}[{index}].env[{variable_at}].valueFrom.fileKeyRef.volumeName", reference.get("volumeName", "")
                if name not in known:
                    yield not_found(here, name)
                elif known[name].get("emptyDir") is None:
                    yield invalid(here, name, "referenced volume must be of type emptyDir")


def validate_pod_annotations(path: str, annotations: dict[str, str], spec: JSONObject, options: PodOptions) -> Errors:
    """Validate the annotations of pods and templates that have rules.

    Args:
        path: Path of the annotations.
        annotations: The annotations.
        spec: Spec of the pod.
        options: Options of the validation.

    Returns:
        The errors.
    """
    if MIRROR in annotations and not spec.get("nodeName"):
        yield invalid(f"{path}[{MIRROR}]", annotations[MIRROR], "must set spec.nodeName if mirror pod annotation is set")
    if not options.any_deletion_cost and not deletion_cost_fits(annotations):
        key = "controller.kubernetes.io/pod-deletion-cost"
        yield invalid(f"{path}[{key}]", annotations[key], "must be a 32bit integer")
    yield from validate_seccomp_annotations(path, annotations)
    yield from validate_app_armor_annotations(path, annotations, spec)


def validate_pod(value: JSONObject, options: PodOptions) -> Errors:
    """Validate a pod except its metadata."""
    metadata, spec = value["metadata"], value["spec"]
    yield from validate_pod_annotations("metadata.annotations", metadata.get("annotations") or {}, spec, options)
    yield from validate_pod_spec("spec", spec, metadata, options)
    if not spec.get("serviceAccountName"):
        for index, volume in enumerate(spec.get("volumes") or ()):
            for source_at, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if source.get("serviceAccountToken") is not None:
                    here = f"spec.volumes[{index}].projected.sources[{source_at}].serviceAccountToken"
                    yield forbidden(here, "must not be specified when serviceAccountName is not set")
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield from containers.check_image_without_spaces(f"spec.{kind}[{index}]", container)


def validate_new_pod(value: JSONObject, options: PodOptions) -> Errors:
    """Validate a new pod except its metadata."""
    yield from validate_pod(value, options)
    spec = value["spec"]
    if spec.get("ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
    yield from check_profiles_match("spec", value["metadata"].get("annotations") or {}, spec)


def validate_pod_template(path: str, template: JSONObject, options: PodOptions) -> Errors:
    """Validate a pod template."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    yield from validate_labels(f"{path}.labels", metadata.get("labels"))
    yield from validate_annotation_map(f"{path}.annotations", annotations)
    yield from validate_pod_annotations(f"{path}.annotations", annotations, spec, options)
    yield from validate_pod_spec(f"{path}.spec", spec, None, options)
    yield from check_profiles_match(f"{path}.spec", annotations, spec)
    if spec.get("ephemeralContainers"):
        yield forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
