"""Options of requests, from query parameters and DeleteOptions bodies, validated as in Kubernetes.

Source: k8s.io/apimachinery pkg/apis/meta/internalversion/validation, pkg/apis/meta/v1/validation, recorded answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kubeloop.apiserver.registry.decoding import kind_of, media_type_of, read_protobuf, read_yaml
from kubeloop.apiserver.validation.formats import unsupported
from kubeloop.apiserver.validation.metadata import validate_field_manager
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.go_json_errors import json_fault
from kubeloop.endpoints.negotiation import PROTOBUF, YAML
from kubeloop.merge.go_text import json_type
from kubeloop.meta.errors import DecodeError
from kubeloop.meta.field_error import FieldError, forbidden, invalid, required
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.meta.selectors import parse_field_selector, parse_label_selector
from kubeloop.meta.strconv import decimal, is_digits
from kubeloop.serving.request import Request

_MATCH = "resourceVersionMatch"


@dataclass(frozen=True, slots=True)
class ListParameters:
    """Options of list, watch and deletecollection. ``send_initial_events`` is None if the request does not set it."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    timeout_seconds: int | None = None
    watch: bool = False
    allow_bookmarks: bool = False
    send_initial_events: bool | None = None


@dataclass(frozen=True, slots=True)
class WriteParameters:
    """Options of create, update and patch. ``field_validation`` is Ignore, Warn or Strict."""

    dry_run: bool = False
    field_validation: str = "Warn"
    field_manager: str = ""
    #: Server-side apply: take fields from other managers instead of a conflict.
    force: bool = False


@dataclass(frozen=True, slots=True)
class DeleteParameters:
    """Options of a deletion. ``grace_period`` is in seconds; if it is None, the default of the kind applies."""

    grace_period: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run: bool = False

    def tree(self) -> dict[str, Any]:
        """Return the options as JSON for admission webhooks."""
        result: dict[str, Any] = {
            "gracePeriodSeconds": self.grace_period,
            "preconditions": {"uid": self.uid, "resourceVersion": self.resource_version},
            "orphanDependents": self.orphan_dependents,
            "propagationPolicy": self.propagation_policy,
            "dryRun": ["All"] if self.dry_run else None,
        }
        result["preconditions"] = {name: value for name, value in result["preconditions"].items() if value is not None} or None
        return {name: value for name, value in result.items() if value is not None}


def list_options(request: Request, *, watch: bool) -> ListParameters:
    """Parse the options of a list or watch.

    Raises:
        BadRequest: A number or selector is malformed.
        Invalid: Options exclude each other.
    """
    timeout = _integer(request, "timeoutSeconds")
    options = ListParameters(
        label_selector=request.parameter("labelSelector"),
        field_selector=request.parameter("fieldSelector"),
        limit=_integer(request, "limit") or 0,
        continue_token=request.parameter("continue"),
        resource_version=request.parameter("resourceVersion"),
        resource_version_match=request.parameter(_MATCH),
        timeout_seconds=timeout,
        watch=watch,
        allow_bookmarks=bool(_boolean(request, "allowWatchBookmarks")),
        send_initial_events=_boolean(request, "sendInitialEvents"),
    )
    _check_grammar(options)
    errors = _watch_errors(options) if watch else _list_errors(options)
    if errors:
        raise api_errors.invalid_options("ListOptions", errors)
    return options


def _check_grammar(options: ListParameters) -> None:
    """Check the syntax of the selectors. Raises BadRequest for malformed ones.

    Malformed selectors are reported before options that exclude each other, and those before unknown fields.
    """
    try:
        if options.label_selector:
            parse_label_selector(options.label_selector)
        if options.field_selector:
            parse_field_selector(options.field_selector)
    except ValueError as error:
        raise api_errors.bad_request(str(error)) from None


def write_options(request: Request, kind: str, *, apply: bool = False) -> WriteParameters:
    """Parse the options of a create, update or patch.

    Args:
        request: The request.
        kind: Kind in error texts: CreateOptions, UpdateOptions or PatchOptions.
        apply: The patch is a server-side apply.

    Raises:
        Invalid: An option has an invalid value.
    """
    dry_run = request.query.get("dryRun", [])
    validation = request.parameter("fieldValidation")
    manager = request.parameter("fieldManager")
    force = _boolean(request, "force")
    errors = []
    if apply and not manager:
        errors.append(required("fieldManager", "is required for apply patch"))
    if kind == "PatchOptions" and not apply and force is not None:
        errors.append(forbidden("force", "may not be specified for non-apply patch"))
    errors += validate_field_manager("fieldManager", manager)
    errors += _dry_run_errors(dry_run)
    if validation not in ("", "Ignore", "Warn", "Strict"):
        errors.append(unsupported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"]))
    if errors:
        raise api_errors.invalid_options(kind, errors)
    return WriteParameters(bool(dry_run), validation or "Warn", manager, bool(force))


def delete_options(request: Request, body: bytes) -> DeleteParameters:
    """Parse the options of a deletion, from the body if there is one, else from the query.

    Raises:
        BadRequest: The body is malformed.
        Invalid: An option has an invalid value.
        UnsupportedMediaType: The body has an unknown media type.
    """
    if body:
        tree = _options_body(body, media_type_of(request.header("Content-Type")))
        preconditions = tree.get("preconditions") or {}
        options = DeleteParameters(
            grace_period=tree.get("gracePeriodSeconds"),
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            orphan_dependents=tree.get("orphanDependents"),
            propagation_policy=tree.get("propagationPolicy"),
        )
        dry_run = tree.get("dryRun") or []
    else:
        policy = request.query.get("propagationPolicy")
        options = DeleteParameters(
            grace_period=_integer(request, "gracePeriodSeconds"),
            uid=request.parameter("uid") or None,
            resource_version=request.parameter("resourceVersion") or None,
            orphan_dependents=_boolean(request, "orphanDependents"),
            propagation_policy=policy[0] if policy else None,
        )
        dry_run = request.query.get("dryRun", [])
    check_delete_options(options, dry_run)
    return DeleteParameters(
        options.grace_period, options.uid, options.resource_version, options.orphan_dependents, options.propagation_policy, bool(dry_run)
    )


def check_delete_options(options: DeleteParameters, dry_run: list[str]) -> None:
    """Check the options of a deletion. Raises Invalid if one is invalid.

    ``dry_run`` holds the values of the parameter ``dryRun``, of which only ``All`` is valid.
    """
    errors = _propagation_errors(options) + _dry_run_errors(dry_run)
    if errors:
        raise api_errors.invalid_options("DeleteOptions", errors)


def resource_version_number(text: str) -> int | None:
    """Return a resourceVersion as a number, or None if it is not an unsigned 64-bit decimal integer."""
    return decimal(text, signed=False)


def parse_uint_fault(text: str) -> str:
    """Return Go's error text for a text that is not an unsigned integer."""
    reason = "value out of range" if is_digits(text) else "invalid syntax"
    return f"strconv.ParseUint: parsing {json.dumps(text)}: {reason}"


def invalid_version(text: str) -> str:
    """Return the error text of reads and watches for a resourceVersion that is not a number."""
    return f"resourceVersion: Invalid value: {json.dumps(text, ensure_ascii=False)}: {parse_uint_fault(text)}"


def _list_errors(options: ListParameters) -> list[FieldError]:
    errors = []
    match = options.resource_version_match
    if match:
        if not options.resource_version:
            errors.append(forbidden(_MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if options.continue_token:
            errors.append(forbidden(_MATCH, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            errors.append(unsupported(_MATCH, match, ["Exact", "NotOlderThan", ""]))
        if match == "Exact" and options.resource_version == "0":
            errors.append(forbidden(_MATCH, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if options.send_initial_events is not None:
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _watch_errors(options: ListParameters) -> list[FieldError]:
    errors = []
    match = options.resource_version_match
    if options.send_initial_events is not None and match != "NotOlderThan":
        errors.append(forbidden(_MATCH, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if match:
        if options.send_initial_events is None:
            errors.append(forbidden(_MATCH, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
        if match != "NotOlderThan":
            errors.append(unsupported(_MATCH, match, ["NotOlderThan"]))
    # A watch with neither option, from no version or "0", requests initial events: upstream sets both options first.
    streamed = options.send_initial_events is None and options.resource_version in ("", "0")
    if options.continue_token and (match or streamed):
        errors.append(forbidden(_MATCH, "resourceVersionMatch is forbidden when continue is provided"))
    return errors


def _dry_run_errors(values: list[str]) -> list[FieldError]:
    if all(value == "All" for value in values):
        return []
    return [unsupported("dryRun", values, ["All"])]


def _propagation_errors(options: DeleteParameters) -> list[FieldError]:
    policy = options.propagation_policy
    if policy is None:
        return []
    errors = []
    if options.orphan_dependents is not None:
        errors.append(invalid("propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"))
    if policy not in ("Foreground", "Background", "Orphan"):
        errors.append(unsupported("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"]))
    return errors


def _options_body(body: bytes, media_type: str) -> dict[str, Any]:
    desired = GroupVersionKind("", "v1", "DeleteOptions")
    tree: Any
    if media_type == PROTOBUF:
        try:
            tree = read_protobuf(body, desired)
        except DecodeError as error:
            raise api_errors.bad_request(str(error)) from None
    elif media_type == YAML:
        try:
            tree = read_yaml(body)
        except DecodeError as error:
            raise api_errors.bad_request(str(error)) from None
    else:
        try:
            tree = json.loads(body)
        except (ValueError, RecursionError):
            fault_text = json_fault(body) or "invalid UTF-8"
            raise api_errors.bad_request(f"couldn't get version/kind; json parse error: {fault_text}") from None
    if tree is None:
        tree = {}  # Go's decoder leaves the target of null unchanged
    if not isinstance(tree, dict):
        raise api_errors.bad_request(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_type(tree)} into Go value of type struct "
            '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        )
    try:
        actual = kind_of(tree, desired)
    except DecodeError as error:
        raise api_errors.bad_request(str(error)) from None
    if actual.kind != "DeleteOptions":
        raise api_errors.bad_request(
            f'no kind "{actual.kind}" is registered for version "{actual.api_version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    return _checked(tree)


def _checked(tree: dict[str, Any]) -> dict[str, Any]:
    """Check the types of the fields of DeleteOptions."""
    from kubeloop.schema import strict

    try:
        conformed = strict.conform({**tree, "apiVersion": "v1", "kind": "DeleteOptions"}, GroupVersionKind("", "v1", "DeleteOptions")).obj
    except DecodeError as error:
        raise api_errors.bad_request(str(error)) from None
    # The schema drops zero values, but a grace period of zero differs from none.
    for name in ("gracePeriodSeconds", "orphanDependents"):
        if tree.get(name) is not None:
            conformed[name] = tree[name]
    return conformed


def _integer(request: Request, name: str) -> int | None:
    values = request.query.get(name)
    if not values:
        return None
    text = values[0]
    number = decimal(text)
    if number is None:
        reason = "value out of range" if is_digits(text.removeprefix("+").removeprefix("-")) else "invalid syntax"
        raise api_errors.bad_request(f"strconv.ParseInt: parsing {json.dumps(text)}: {reason}")
    return number


def _boolean(request: Request, name: str) -> bool | None:
    """Return a boolean query parameter as upstream: false, 0 and the empty text are False, any other value is True."""
    values = request.query.get(name)
    if not values:
        return None
    return values[0].lower() not in ("false", "0")
