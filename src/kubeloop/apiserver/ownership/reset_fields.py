"""Fields that a write through one path does not reach, and that it therefore never owns: status on the main resource, spec on ``/status``.

Source: GetResetFields of the strategies in k8s.io/kubernetes pkg/registry and k8s.io/apiextensions-apiserver pkg/registry. Pods' strategies
for ``/ephemeralcontainers`` and ``/resize`` have such filters, too, but nothing upstream asks for them: writers own whatever they sent.
"""

from __future__ import annotations

from typing import Final

from kubeloop.apiserver.resource import ServedResource
from kubeloop.meta.kinds import GroupResource

#: From the top of the object to the field; what is below it goes with it.
Path = tuple[str, ...]

_STATUS: Final[tuple[Path, ...]] = (("status",),)
_SPEC: Final[tuple[Path, ...]] = (("spec",),)
_SPEC_AND_METADATA: Final[tuple[Path, ...]] = (("metadata",), ("spec",))

_REQUESTS = GroupResource("certificates.k8s.io", "certificatesigningrequests")

#: Kinds whose main resource resets something else than ``status``.
_ON_MAIN: Final[dict[GroupResource, tuple[Path, ...]]] = {
    _REQUESTS: (("spec",), ("status",)),
    GroupResource("certificates.k8s.io", "podcertificaterequests"): (),
}

#: Kinds whose ``/status`` resets something else than ``spec``.
_ON_STATUS: Final[dict[GroupResource, tuple[Path, ...]]] = {
    GroupResource("", "pods"): (("spec",), ("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")),
    GroupResource("apps", "deployments"): (("spec",), ("metadata", "labels")),
    _REQUESTS: (("spec",), ("status", "conditions")),
    **{
        GroupResource(group, resource): _SPEC_AND_METADATA
        for group, resource in (
            ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("apiregistration.k8s.io", "apiservices"),
            ("flowcontrol.apiserver.k8s.io", "flowschemas"),
            ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
            ("internal.apiserver.k8s.io", "storageversions"),
            ("networking.k8s.io", "servicecidrs"),
            ("resource.k8s.io", "devicetaintrules"),
            ("resource.k8s.io", "resourceclaims"),
            ("resource.k8s.io", "resourcepoolstatusrequests"),
            ("scheduling.k8s.io", "podgroups"),
            ("storage.k8s.io", "volumeattachments"),
            ("storagemigration.k8s.io", "storageversionmigrations"),
        )
    },
}

#: Other subresources, by resource and name.
_ON_OTHERS: Final[dict[tuple[GroupResource, str], tuple[Path, ...]]] = {
    (_REQUESTS, "approval"): (("spec",), ("status", "certificate")),
    (GroupResource("", "namespaces"), "finalize"): _STATUS,
}


def reset_fields(resource: ServedResource, subresource: str) -> tuple[Path, ...]:
    """What a write through ``subresource`` (empty: the main resource) does not change, whatever it says."""
    group_resource = resource.gvr.group_resource
    if not subresource:
        found = _ON_MAIN.get(group_resource)
        if found is not None:
            return found
        return _STATUS if "status" in resource.subresources else ()
    if subresource == "status":
        return _SPEC_AND_METADATA if resource.custom else _ON_STATUS.get(group_resource, _SPEC)
    return _ON_OTHERS.get((group_resource, subresource), ())
