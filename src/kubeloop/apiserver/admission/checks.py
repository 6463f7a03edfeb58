"""Validating plug-ins for owner references, certificate requests, device admin access and claim expansion."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.apiserver.admission.chain import Attributes, new_forbidden
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import Access, Authorizer, User
from kubeloop.meta.field_error import FieldError, forbidden
from kubeloop.meta.kinds import GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource
from kubeloop.meta.quantity import Quantity
from kubeloop.types import JSONObject

# OwnerReferencesPermissionEnforcement: a user who sets an owner of an object needs the permission to delete the object; one who sets
# blockOwnerDeletion needs the permission to update the finalizers of the owner.
#
# Source: plugin/pkg/admission/gc.


#: Resources without this check: old kubelets corrupt owner references there, and the server ignores the references that they send.
_UNCHECKED = (GroupResource("", "pods"), "status")


class OwnerReferencesPermissionEnforcement:
    """Plug-in OwnerReferencesPermissionEnforcement: a user who changes the owners of an object needs the permission to delete it.

    To set blockOwnerDeletion, the user also needs the permission to update the finalizers of the owner.
    """

    def __init__(self, registry: Registry, authorizer: Authorizer) -> None:
        self._registry = registry
        self._authorizer = authorizer

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        if attributes.obj is None or attributes.operation not in ("CREATE", "UPDATE"):
            return
        owners, before = _owners(attributes.obj), _owners(attributes.old)
        if owners == before:
            return
        gvr, user = attributes.resource.gvr, attributes.user
        if (gvr.group_resource, attributes.subresource) == _UNCHECKED:
            return
        await self._authorizer.prepare(user)
        if attributes.operation != "CREATE":
            access = Access(user, "delete", *gvr, attributes.subresource, attributes.namespace, attributes.name)
            decision = self._authorizer.authorize(access)
            if not decision.allowed:
                why = f"cannot set an ownerRef on a resource you can't delete: {decision.reason}, <nil>"
                raise new_forbidden(attributes, why)
        blocking = list(_newly_blocking(owners, before))
        if not blocking or self._authorizer.authorize(Access(user, "update", "*", "*", "*", "finalizers", name="*")).allowed:
            return
        for owner in blocking:
            self._check(attributes, owner)

    def _check(self, attributes: Attributes, owner: JSONObject) -> None:
        """Check that the user may set blockOwnerDeletion in an owner reference.

        Raises:
            Forbidden: The user may not update the finalizers of the owner, or the server does not serve its kind.
        """
        where = GroupVersion.parse(owner["apiVersion"])
        resource = self._registry.kind(GroupVersionKind(*where, owner["kind"]))
        if resource is None:
            why = f'no matches for kind "{owner["kind"]}" in version "{owner["apiVersion"]}"'
            subject = f"cannot find RESTMapping for APIVersion {owner['apiVersion']} Kind {owner['kind']}"
            raise new_forbidden(attributes, f"cannot set blockOwnerDeletion in this case because {subject}: {why}")
        namespace = attributes.namespace if resource.namespaced else ""
        access = Access(attributes.user, "update", *resource.gvr, "finalizers", namespace, owner["name"])
        decision = self._authorizer.authorize(access)
        if not decision.allowed:
            subject = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"
            raise new_forbidden(attributes, f"{subject}: {decision.reason}, <nil>")


def _owners(obj: JSONObject | None) -> list[JSONObject]:
    result: list[JSONObject] = ((obj or {}).get("metadata") or {}).get("ownerReferences") or []
    return result


def _newly_blocking(owners: list[JSONObject], before: list[JSONObject]) -> Iterator[JSONObject]:
    blocked = {one.get("uid") for one in before if one.get("blockOwnerDeletion")}
    return (one for one in owners if one.get("blockOwnerDeletion") and one.get("uid") not in blocked)


# Permission to approve, sign and attest for a signer: CertificateApproval, CertificateSigning, ClusterTrustBundleAttest.
#
# Source: plugin/pkg/admission/certificates/{approval,signing,ctbattest}, pkg/certauthorization.


_GROUP = "certificates.k8s.io"


async def may_use_signer(authorizer: Authorizer, user: User, verb: str, signer: str) -> bool:
    """Return whether a user has a permission for a signer or for all signers of its domain (``kubernetes.io/*``).

    Args:
        authorizer: The authorizer of the server.
        user: The user who sent the request.
        verb: ``approve``, ``sign`` or ``attest``.
        signer: Name of the signer, such as ``kubernetes.io/kubelet-serving``.

    Returns:
        True if the authorizer allows the verb for the signer or for all signers of its domain.
    """
    await authorizer.prepare(user)
    names = (signer, f"{signer.partition('/')[0]}/*")
    return any(authorizer.authorize(Access(user, verb, _GROUP, "*", "signers", name=name)).allowed for name in names)


class CertificateApproval:
    """Plug-in CertificateApproval: a user who approves or denies a request needs the permission ``approve`` for its signer."""

    resources = frozenset({GroupResource(_GROUP, "certificatesigningrequests")})

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        if attributes.subresource != "approval" or attributes.operation != "UPDATE" or attributes.old is None:
            return
        signer = attributes.old["spec"].get("signerName", "")
        if not await may_use_signer(self._authorizer, attributes.user, "approve", signer):
            raise new_forbidden(attributes, f'user not permitted to approve requests with signerName "{signer}"')


class CertificateSigning:
    """Plug-in CertificateSigning: a user who changes the certificate or the conditions needs the permission ``sign`` for the signer."""

    resources = frozenset({GroupResource(_GROUP, "certificatesigningrequests")})

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        obj, old = attributes.obj, attributes.old
        if attributes.subresource != "status" or attributes.operation != "UPDATE" or obj is None or old is None:
            return
        before, after = old.get("status") or {}, obj.get("status") or {}
        if all((before.get(name) or None) == (after.get(name) or None) for name in ("certificate", "conditions")):
            return
        signer = old["spec"].get("signerName", "")
        if not await may_use_signer(self._authorizer, attributes.user, "sign", signer):
            raise new_forbidden(attributes, f'user not permitted to sign requests with signerName "{signer}"')


_REQUESTS = GroupResource("certificates.k8s.io", "certificatesigningrequests")
_SIGNER = "kubernetes.io/kube-apiserver-client"
_MASTERS = "system:masters"


class CertificateSubjectRestriction:
    """Plug-in CertificateSubjectRestriction: rejects client certificates of kube-apiserver's signer for the group system:masters."""

    resources = frozenset({_REQUESTS})

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if attributes.resource.gvr.group_resource != _REQUESTS or attributes.subresource or attributes.operation != "CREATE" or obj is None:
            return
        spec = obj.get("spec") or {}
        if spec.get("signerName") != _SIGNER:
            return
        from kubeloop.apiserver.builtin.certificates.pem import organizations_of

        if _MASTERS in organizations_of(spec.get("request")):
            why = f"use of {_SIGNER} signer with {_MASTERS} group is not allowed"
            raise api_errors.forbidden(_REQUESTS, attributes.name or obj["metadata"].get("generateName") or "Unknown", why)


_CLAIMS, _TEMPLATES = (GroupResource("resource.k8s.io", name) for name in ("resourceclaims", "resourceclaimtemplates"))
_LABEL = "resource.kubernetes.io/admin-access"


class DeviceAdminAccess:
    """Rejects ``adminAccess`` in namespaces without the label for it: in new requests for devices, and in new allocation results."""

    resources = frozenset({_CLAIMS, _TEMPLATES})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        """Add the plug-in's errors to those of validation. The object stays unchanged."""
        attributes.findings.extend(await self._faults(attributes))

    async def validate(self, attributes: Attributes) -> None:
        """Check once more, because later plug-ins may have changed the object."""
        errors = await self._faults(attributes)
        if errors:
            metadata = (attributes.obj or {}).get("metadata") or {}
            raise api_errors.invalid(GroupKind(*attributes.resource.gvk[::2]), metadata.get("name", ""), errors)

    async def _faults(self, attributes: Attributes) -> list[FieldError]:
        path = next(_asked(attributes), None)
        if path is None or await self._is_labelled(attributes.namespace):
            return []
        return [forbidden(path, f"admin access to devices requires the `{_LABEL}: true` label on the containing namespace")]

    async def _is_labelled(self, namespace: str) -> bool:
        resource = self._registry.get(GroupVersionResource("", "v1", "namespaces"))
        stored = await self._objects.get(resource, "", namespace) if resource else None
        return stored is not None and (stored.obj["metadata"].get("labels") or {}).get(_LABEL) == "true"


def _asked(attributes: Attributes) -> Iterator[str]:
    """Yield the paths of the fields in which a write newly requests or allocates admin access to devices."""
    kind, obj = attributes.resource.gvr.group_resource, attributes.obj
    if kind not in (_CLAIMS, _TEMPLATES) or obj is None:
        return
    if attributes.operation == "CREATE":
        spec = obj.get("spec") or {}
        spec = spec.get("spec") or {} if kind == _TEMPLATES else spec
        for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
            if (request.get("exactly") or {}).get("adminAccess"):
                # Upstream reports this path for the spec of a template too.
                yield f"spec.devices.requests[{index}].adminAccess"
    elif attributes.subresource == "status":
        from kubeloop.apiserver.builtin.devices.claims import results_of  # Imported with the first claim, because it imports CEL.

        if any(one.get("adminAccess") for one in results_of((attributes.old or {}).get("status") or {})):
            return
        for index, result in enumerate(results_of(obj.get("status") or {})):
            if result.get("adminAccess"):
                yield f"status.allocation.devices.results[{index}].adminAccess"


_VOLUME_CLAIMS = GroupResource("", "persistentvolumeclaims")
_CLASSES = GroupVersionResource("storage.k8s.io", "v1", "storageclasses")
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_UNBOUND = "Only bound persistent volume claims can be expanded"
_FIXED = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"


class PersistentVolumeClaimResize:
    """Plug-in PersistentVolumeClaimResize: rejects a larger storage request unless the claim is bound and its class allows expansion."""

    resources = frozenset({_VOLUME_CLAIMS})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        obj, old = attributes.obj, attributes.old
        if attributes.resource.gvr.group_resource != _VOLUME_CLAIMS or attributes.subresource or attributes.operation != "UPDATE":
            return
        if obj is None or old is None or _size(obj) <= _size(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            raise api_errors.forbidden(_VOLUME_CLAIMS, attributes.name, _UNBOUND)
        name = _class_of(obj)
        if not name or name != _class_of(old) or not await self._expands(name):
            raise api_errors.forbidden(_VOLUME_CLAIMS, attributes.name, _FIXED)

    async def _expands(self, name: str) -> bool:
        classes = self._registry.get(_CLASSES)
        stored = await self._objects.get(classes, "", name) if classes else None
        return stored is not None and stored.obj.get("allowVolumeExpansion") is True


def _size(claim: JSONObject) -> Quantity:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return Quantity(requests.get("storage", "0"))


def _class_of(claim: JSONObject) -> str:
    named = (claim["metadata"].get("annotations") or {}).get(_OLD_CLASS)
    return named if named is not None else (claim.get("spec") or {}).get("storageClassName") or ""
