"""Checks the connection: the server's version and clock, the user, and whether the user has the permissions that the program needs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import msgspec

from kubeloop.api.authorization.v1 import ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec
from kubeloop.api.version import Info
from kubeloop.cli.doctor.findings import DoctorFinding, State
from kubeloop.client import Client
from kubeloop.controller.permissions import Permission, rules_of
from kubeloop.meta import ApiError, KubeloopError, NotFound
from kubeloop.types import JSONObject

_API = "rbac.authorization.k8s.io/v1"
#: Maximum number of concurrent reviews.
_TOGETHER = 10


@dataclass(frozen=True, slots=True)
class Missing:
    """Missing permissions in ``namespace``; "" means all namespaces, or a cluster-scoped kind."""

    permission: Permission
    namespace: str = ""


async def access(client: Client, permissions: Sequence[Permission], namespace: str | None) -> tuple[list[DoctorFinding], list[Missing]]:
    """Return a finding for each resource, and the missing permissions. ``namespace`` None: in all namespaces."""
    slots = asyncio.Semaphore(_TOGETHER)

    async def allowed(permission: Permission, verb: str) -> bool:
        async with slots:
            return await _allowed(client, permission, verb, namespace)

    found: list[DoctorFinding] = []
    missing: list[Missing] = []
    try:
        for one in permissions:
            answers = await asyncio.gather(*(allowed(one, verb) for verb in one.verbs))
            lacking = tuple(verb for verb, yes in zip(one.verbs, answers, strict=True) if not yes)
            found.append(_finding(one, lacking, namespace))
            if lacking:
                missing.append(Missing(replace(one, verbs=lacking), (namespace or "") if one.namespaced else ""))
    except NotFound:
        said = "the server has no SelfSubjectAccessReview, so that permissions cannot be checked"
        return [DoctorFinding("permission", "all", "unknown", said)], []
    except ApiError as error:
        return [*found, DoctorFinding("permission", "all", "unknown", f"the server does not answer reviews: {error}")], missing
    return found, missing


def manifest(missing: Iterable[Missing], name: str, user: str) -> list[JSONObject]:
    """Return roles that grant the missing permissions to ``user``: a Role per namespace, a ClusterRole for all namespaces."""
    parts = user.split(":")
    if user.startswith("system:serviceaccount:") and len(parts) == 4:
        subject = {"kind": "ServiceAccount", "namespace": parts[2], "name": parts[3]}
    else:
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    by_namespace: dict[str, list[Permission]] = {}
    for one in missing:
        by_namespace.setdefault(one.namespace, []).append(one.permission)
    documents: list[JSONObject] = []
    for namespace, some in sorted(by_namespace.items()):
        kind, where = ("Role", {"namespace": namespace}) if namespace else ("ClusterRole", {})
        metadata = {"name": name, **where}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        documents.append({"apiVersion": _API, "kind": kind, "metadata": metadata, "rules": rules_of(some)})
        binding = {"apiVersion": _API, "kind": f"{kind}Binding", "metadata": metadata, "roleRef": reference, "subjects": [subject]}
        documents.append(binding)
    return documents


async def _allowed(client: Client, permission: Permission, verb: str, namespace: str | None) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    where = namespace if namespace and permission.namespaced else ""
    asked = ResourceAttributes(verb=verb, group=permission.group, resource=resource, subresource=subresource, namespace=where)
    review = await client.create(SelfSubjectAccessReview(spec=SelfSubjectAccessReviewSpec(resource_attributes=asked)))
    return review.status.allowed


def _finding(permission: Permission, lacking: tuple[str, ...], namespace: str | None) -> DoctorFinding:
    where = f' in namespace "{namespace}"' if namespace and permission.namespaced else ""
    for_whom = f" (for {permission.why})" if permission.why else ""
    if not lacking:
        return DoctorFinding("permission", permission.name, "ok", f"{', '.join(permission.verbs)}{where}")
    said = f"may not {', '.join(lacking)}{where}{for_whom}"
    return DoctorFinding("permission", permission.name, "failed", said, "kubeloop doctor --fix prints the roles that are missing")


#: The minor version of Kubernetes whose kinds ``kubeloop.api`` has.
MODELS = 36
#: A server that is this many minor versions older lacks much of the models' content.
_OLD = 4
#: Tolerance in seconds. HTTP dates are in whole seconds, and the response takes time.
_TOLERATED = 2.0
#: Beyond this, tokens and certificates count as expired or not yet valid.
_DANGEROUS = 60.0


async def connection(client: Client) -> tuple[list[DoctorFinding], bool]:
    """Check the connection, the server's version and clock, and the user. Return findings, and whether further checks make sense."""
    config = client.transport.config
    subject = config.server
    before = client.clock.wall()
    try:
        answer = await client.transport.request("GET", "/version", timeout=15)
        info = msgspec.json.decode(answer.body, type=Info)
    except KubeloopError as error:
        fix = "kubeloop config explain shows which settings are used, and where each comes from"
        return [DoctorFinding("connection", subject, "failed", str(error), fix)], False
    except msgspec.DecodeError as error:
        fix = "is this the address of a Kubernetes API server?"
        return [DoctorFinding("connection", subject, "failed", f"/version is not a Kubernetes version: {error}", fix)], False
    after = client.clock.wall()
    took = (after - before).total_seconds()
    found = [DoctorFinding("connection", subject, "ok", f"answered in {took * 1000:.0f} ms ({config.name or 'no name'})")]
    return [*found, _version(info), skew(answer.headers, before, after), await _user(client)], True


def _version(info: Info) -> DoctorFinding:
    said = f"{info.git_version}; the models here are of 1.{MODELS}"
    minor = int(re.sub(r"\D.*", "", info.minor) or 0)
    if minor <= MODELS - _OLD:
        return DoctorFinding(
            "version", "server", "warning", said, "it lacks kinds and fields that the models have, and drops fields that it does not know"
        )
    if minor > MODELS:
        return DoctorFinding("version", "server", "ok", f"{said}; fields that they do not know are kept")
    return DoctorFinding("version", "server", "ok", said)


def skew(headers: Mapping[str, str], before: datetime, after: datetime) -> DoctorFinding:
    """Return a finding about the difference between the server's clock and this machine's, by the ``Date`` of a response.

    The request was sent at ``before``, and the response arrived at ``after``.
    """
    date = headers.get("Date")
    if not date:
        return DoctorFinding("clock", "skew", "unknown", "the server's answers have no Date")
    try:
        there = parsedate_to_datetime(date)
    except ValueError:
        return DoctorFinding("clock", "skew", "unknown", f"the server's Date cannot be read: {date}")
    # The header has whole seconds, rounded down: the response was written within the following second.
    there = there.replace(tzinfo=there.tzinfo or UTC)
    late = max((there - after).total_seconds(), 0.0)
    early = max((before - (there + timedelta(seconds=1))).total_seconds(), 0.0)
    seconds = max(late, early)
    direction = "ahead of" if late else "behind"
    said = f"the server's clock is {seconds:.0f} s {direction} this machine's" if seconds > _TOLERATED else "the clocks agree"
    fix = "set the clocks by NTP; certificates and tokens depend on them, and times in statuses and events"
    state: State = "ok" if seconds <= _TOLERATED else "warning" if seconds <= _DANGEROUS else "failed"
    return DoctorFinding("clock", "skew", state, said, fix if state != "ok" else "")


async def _user(client: Client) -> DoctorFinding:
    """Return a finding with the name and groups that the server has for the client's user."""
    from kubeloop.api.authentication.v1 import SelfSubjectReview

    try:
        review = await client.create(SelfSubjectReview())
    except ApiError as error:
        return DoctorFinding("identity", "user", "unknown", f"the server does not report the user's name: {error}")
    info = review.status.user_info
    groups = f" ({', '.join(info.groups)})" if info.groups else ""
    return DoctorFinding("identity", "user", "ok", f"{info.username}{groups}")
