"""Checks connection, user, clock and version of the server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import msgspec

from kubeloop.api.version import Info
from kubeloop.cli.doctor.findings import DoctorFinding, State
from kubeloop.client import Client
from kubeloop.meta import ApiError, KubeloopError

#: The minor version of Kubernetes whose kinds ``kubeloop.api`` has.
MODELS = 36
#: A server that is this many minor versions older lacks much of the models' content.
_OLD = 4
#: Tolerance in seconds. HTTP dates are in whole seconds, and the response takes time.
_TOLERATED = 2.0
#: Beyond this, tokens and certificates count as expired or not yet valid.
_DANGEROUS = 60.0


async def connection(client: Client) -> tuple[list[DoctorFinding], bool]:
    """Return findings, and whether further checks make sense."""
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
        return [DoctorFinding("connection", subject, "failed", f"/version is no Kubernetes version: {error}", fix)], False
    after = client.clock.wall()
    took = (after - before).total_seconds()
    found = [DoctorFinding("connection", subject, "ok", f"answered in {took * 1000:.0f} ms ({config.name or 'no name'})")]
    return [*found, _version(info), skew(answer.headers, before, after), await _user(client)], True


def _version(info: Info) -> DoctorFinding:
    said = f"{info.git_version}; the models here are of 1.{MODELS}"
    minor = int(re.sub(r"\D.*", "", info.minor) or 0)
    if minor <= MODELS - _OLD:
        return DoctorFinding(
            "version", "server", "warning", said, "it lacks kinds and fields that the models have: what it does not know it drops"
        )
    if minor > MODELS:
        return DoctorFinding("version", "server", "ok", f"{said}; fields that they do not know are kept")
    return DoctorFinding("version", "server", "ok", said)


def skew(headers: Mapping[str, str], before: datetime, after: datetime) -> DoctorFinding:
    """Return the difference between the server's clock and this machine's, by the Date of a response requested at ``before``."""
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
    """Return the server's name for this user."""
    from kubeloop.api.authentication.v1 import SelfSubjectReview

    try:
        review = await client.create(SelfSubjectReview())
    except ApiError as error:
        return DoctorFinding("identity", "user", "unknown", f"the server does not say who this is: {error}")
    info = review.status.user_info
    groups = f" ({', '.join(info.groups)})" if info.groups else ""
    return DoctorFinding("identity", "user", "ok", f"{info.username}{groups}")
