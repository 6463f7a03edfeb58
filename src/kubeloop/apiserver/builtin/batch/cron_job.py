"""Strategy of CronJobs. Source: pkg/apis/batch/validation, pkg/registry/batch/cronjob, github.com/robfig/cron (schedules)."""

from __future__ import annotations

import re
import zoneinfo

from kubeloop.apiserver.builtin.apps.template import TemplateStrategy, template_options
from kubeloop.apiserver.builtin.batch.job import validate_job_spec
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.pods.warnings import pod_warnings
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import check_not_negative, check_one_of, unsupported
from kubeloop.meta.field_error import Errors, FieldError, invalid, required
from kubeloop.meta.strconv import decimal
from kubeloop.types import JSONObject

# Validation of cron schedules. Source: the standard parser of github.com/robfig/cron/v3.


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: Minimum and maximum of minute, hour, day of the month, month, day of the week, and the names of values.
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: at + 1 for at, name in enumerate(_MONTHS)}),
    (0, 6, {name: at for at, name in enumerate(_DAYS)}),
)
_DESCRIPTORS = {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
_AMOUNT = re.compile(r"(\d+\.?\d*|\.\d+)([^.\d]*)")
_NANOSECONDS = {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}
_LONGEST = 2**63 - 1


def schedule_error(text: str) -> str:
    """Return why a schedule is invalid, or an empty text if it is valid. A leading ``TZ=`` or ``CRON_TZ=`` is skipped."""
    if text.startswith(("TZ=", "CRON_TZ=")):
        text = text.partition(" ")[2].strip()
    if text.startswith("@"):
        return _descriptor_fault(text)
    fields = text.split()
    if len(fields) != 5:
        return f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    for value, (low, high, names) in zip(fields, _FIELDS, strict=True):
        for part in value.split(","):
            if part and (error := _part_fault(part, low, high, names)):
                return error
    return ""


def _descriptor_fault(text: str) -> str:
    if text in _DESCRIPTORS:
        return ""
    if text.startswith("@every "):
        duration = text.removeprefix("@every ")
        error = _duration_fault(duration)
        return f"failed to parse duration {text}: time: {error}" if error else ""
    return f"unrecognized descriptor: {text}"


def _duration_fault(text: str) -> str:
    """Return why a duration is invalid, or an empty text if it is valid. Source: Go's time.ParseDuration."""
    invalid = f'invalid duration "{text}"'
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return ""
    total, index = 0.0, 0
    while index < len(rest) or not index:
        match = _AMOUNT.match(rest, index)
        if not match:
            return invalid
        amount, unit = match.groups()
        if not unit:
            return f'missing unit in duration "{text}"'
        if unit not in _NANOSECONDS:
            return f'unknown unit "{unit}" in duration "{text}"'
        total, index = total + float(amount) * _NANOSECONDS[unit], match.end()
    return invalid if total > _LONGEST else ""


def _part_fault(part: str, low: int, high: int, names: dict[str, int]) -> str:
    spread, *steps = part.split("/")
    bounds = spread.split("-")
    if bounds[0] in ("*", "?"):
        start, end = low, high
    else:
        numbers = []
        for one in bounds[:2]:
            result = names.get(one.lower(), _number(one))
            if isinstance(result, str):
                return result
            numbers.append(result)
        if len(bounds) > 2:
            return f"too many hyphens: {part}"
        start, end = numbers[0], numbers[-1]
    step = 1
    if len(steps) > 1:
        return f"too many slashes: {part}"
    if steps:
        result = _number(steps[0])
        if isinstance(result, str):
            return result
        step = result
        if len(bounds) == 1 and bounds[0] not in ("*", "?"):
            end = high
    return _bounds_fault(part, start, end, step, low, high)


def _bounds_fault(part: str, start: int, end: int, step: int, low: int, high: int) -> str:
    if start < low:
        return f"beginning of range ({start}) below minimum ({low}): {part}"
    if end > high:
        return f"end of range ({end}) above maximum ({high}): {part}"
    if start > end:
        return f"beginning of range ({start}) beyond end of range ({end}): {part}"
    return "" if step else f"step of range should be a positive number: {part}"


def _number(text: str) -> int | str:
    """Return the number, or the reason why the text is not one."""
    number = decimal(text)
    if number is not None:
        return number if number >= 0 else f"negative number ({number}) not allowed: {text}"
    why = "value out of range" if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else "invalid syntax"
    return f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": {why}'


#: The names of jobs have a suffix of eleven characters.
_LONGEST_NAME = 52


class CronJobStrategy(TemplateStrategy):
    """Strategy of CronJobs."""

    warns_about_name = True

    def template_warnings(self, obj: JSONObject) -> list[str]:
        template = (obj["spec"].get("jobTemplate") or {}).get("spec", {}).get("template") or {}
        return pod_warnings("spec.jobTemplate.spec.template", template.get("metadata") or {}, template.get("spec") or {})

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
