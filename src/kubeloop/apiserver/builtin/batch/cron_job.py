"""Strategy of CronJobs. Source: pkg/apis/batch/validation, pkg/registry/batch/cronjob."""

from __future__ import annotations

import re
import zoneinfo

from kubeloop.apiserver.builtin.apps.template import TemplateStrategy, template_options
from kubeloop.apiserver.builtin.batch.job import job_warnings, validate_job_spec
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import check_not_negative, check_one_of, unsupported
from kubeloop.cron import schedule_error
from kubeloop.meta.field_error import Errors, FieldError, invalid, required
from kubeloop.types import JSONObject

#: The names of jobs have a suffix of eleven characters.
_LONGEST_NAME = 52


class CronJobStrategy(TemplateStrategy):
    """Strategy of CronJobs."""

    warns_about_name = True

    def template_warnings(self, obj: JSONObject) -> list[str]:
        return job_warnings("spec.jobTemplate.spec", (obj["spec"].get("jobTemplate") or {}).get("spec") or {})

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        errors = list(_spec(obj["spec"], None, template_options(None)))
        name = obj["metadata"].get("name", "")
        if len(name) > _LONGEST_NAME:
            errors.append(invalid("metadata.name", name, f"must be no more than {_LONGEST_NAME} characters"))
        return errors

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        before = (old["spec"].get("jobTemplate") or {}).get("spec", {}).get("template")
        return list(_spec(obj["spec"], old["spec"], template_options(before)))

    def warnings_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        result = super().warnings_on_update(context, obj, old)
        if "TZ" in obj["spec"].get("schedule", ""):
            page = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/"
            result.append(f"cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see {page} for more details")
        return result


def _spec(spec: JSONObject, old: JSONObject | None, options: PodOptions) -> Errors:
    schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
    if not schedule:
        yield required("spec.schedule")
    else:
        yield from _schedule(schedule, zone, zone_allowed="TZ" in (old or {}).get("schedule", ""))
    yield from check_not_negative("spec.startingDeadlineSeconds", spec.get("startingDeadlineSeconds"))
    if zone is not None and (old is None or old.get("timeZone") != zone):
        yield from _time_zone("spec.timeZone", zone)
    policy = spec.get("concurrencyPolicy", "")
    if not policy:
        yield required("spec.concurrencyPolicy")
    else:
        yield from check_one_of("spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace"))
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    path = "spec.jobTemplate.spec"
    yield from validate_job_spec(path, job, options)
    if job.get("selector") is not None:
        yield invalid(f"{path}.selector", job["selector"], "`selector` will be auto-generated")
    if job.get("manualSelector"):
        yield unsupported(f"{path}.manualSelector", True, ("nil", "false"))
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from check_not_negative(f"spec.{name}", spec.get(name))


def _schedule(schedule: str, zone: str | None, *, zone_allowed: bool) -> Errors:
    if error := schedule_error(schedule):
        yield invalid("spec.schedule", schedule, error)
    if "TZ" not in schedule:
        return
    if not zone_allowed:
        yield invalid("spec.schedule", schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    elif zone is not None:
        yield invalid("spec.schedule", schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def _time_zone(path: str, zone: str) -> Errors:
    if not zone:
        yield invalid(path, zone, "timeZone must be nil or non-empty string")
        return
    unknown = f"unknown time zone {zone}"
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not re.fullmatch(r"[A-Za-z.\-_0-9+]{1,14}", part):
            yield invalid(path, zone, unknown)
            return
    if zone.lower() == "local":
        yield invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
        return
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        yield invalid(path, zone, unknown)
