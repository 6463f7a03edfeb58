"""The declaration of one admission webhook by a decorator, checked at import, with all options of its configuration."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypedDict

from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.webhooks.request import OPERATIONS, Operation
from kubeloop.meta import LabelSelector, Resource, UnknownKind
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.meta.names import dns1123_subdomain
from kubeloop.meta.resource import kind_info
from kubeloop.meta.type_checks import described, described_word


class HookOptions(TypedDict, total=False):
    """Options of an admission webhook, as in its configuration. The defaults are the API's, except for ``side_effects`` ("None").

    ``operations``: default CREATE and UPDATE. ``subresource``: ``status``, ``scale``, ``exec``; default: the object itself.
    ``name``: a DNS name of at least three parts, unique in the program. ``path``: the URL's path; must begin with a slash.
    ``failure_policy``: "Fail" or "Ignore" lets the write fail or pass when the webhook cannot be reached. ``side_effects``: "NoneOnDryRun"
    if the hook has side effects, which it must omit if ``request.dry_run`` is set. ``timeout_seconds``: 1 to 30. ``match_conditions``: name
    -> CEL expression. ``reinvocation_policy`` is for mutating hooks.

    Example:
        >>> options: HookOptions = {"operations": ["UPDATE"], "failure_policy": "Ignore", "timeout_seconds": 5}
    """

    operations: Sequence[Operation]
    subresource: str
    name: str
    path: str
    failure_policy: Literal["Fail", "Ignore"]
    side_effects: Literal["None", "NoneOnDryRun"]
    match_policy: Literal["Equivalent", "Exact"]
    scope: Literal["*", "Namespaced", "Cluster"]
    namespace_selector: LabelSelector | None
    object_selector: LabelSelector | None
    match_conditions: Mapping[str, str]
    timeout_seconds: int
    reinvocation_policy: Literal["Never", "IfNeeded"]


@dataclass(frozen=True, slots=True)
class AdmissionHook:
    """The declaration of one admission webhook. ``calls`` has the function for each operation; ``body`` is the class of its object.

    Example:
        >>> from kubeloop.controller.webhooks import Webhooks
        >>> hooks = Webhooks()
        >>> @hooks.validating(ConfigMap)
        ... def check(config_map: ConfigMap) -> None: ...
        >>> hooks.hook(check).operations
        ('CREATE', 'UPDATE')
    """

    name: str
    path: str
    mutating: bool
    kind: type[Resource]
    body: type[Resource]
    subresource: str
    calls: Mapping[str, HookCall]
    options: HookOptions = field(default_factory=HookOptions)

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(one for one in OPERATIONS if one in self.calls)

    @property
    def gvr(self) -> GroupVersionResource:
        return kind_info(self.kind).gvr

    @property
    def timeout(self) -> float:
        """Seconds for which an API server waits for the response."""
        return self.options.get("timeout_seconds", DEFAULT_TIMEOUT)


@dataclass(frozen=True, slots=True)
class HookCall:
    """A hook's function. ``with_request``: its second argument is the request. ``plain``: it is synchronous."""

    function: Callable[..., Any]
    with_request: bool
    plain: bool


#: Seconds for which an API server waits for a webhook; the API's default.
DEFAULT_TIMEOUT: Final = 10
_LONGEST_TIMEOUT: Final = 30
_METHODS: Final[Mapping[Operation, str]] = {"CREATE": "create", "UPDATE": "update", "DELETE": "delete", "CONNECT": "connect"}


def declare(kind: type[Resource], body: type[Resource] | None, target: Any, options: HookOptions, *, mutating: bool) -> AdmissionHook:
    """Return the hook that a decorator declares.

    Args:
        kind: The kind of the writes.
        body: Class of the object, if it differs from ``kind`` (subresources). None: ``kind``.
        target: A function, or a class with a method for each operation.
        options: Options of the decorator.
        mutating: The hook may change the object.

    Raises:
        DeclarationError: the declaration is invalid; the message names the hook and the fix.
    """
    label = getattr(target, "__qualname__", type(target).__name__)
    argument: Any = kind
    if not (isinstance(argument, type) and issubclass(argument, Resource)):
        raise DeclarationError(f"{label}: {described(argument)} is not a kind; give a class such as Pod, or Unstructured.for_kind(...)")
    try:
        gvr = kind_info(kind).gvr
    except UnknownKind as error:
        raise DeclarationError(f'{label}: {error}; Unstructured.for_kind(..., plural="...") names it') from None
    subresource = options.get("subresource", "")
    carried = body or kind
    calls = _calls(label, target, options, carried, mutating=mutating)
    if "CONNECT" in calls and body is None:
        raise DeclarationError(
            f"{label}: CONNECT carries options, not a {kind.__name__}; name the kind of the options with body=..., "
            'such as body=Unstructured.for_kind("v1", "PodExecOptions")'
        )
    name = options.get("name") or f"{_dashed(target, label)}.{gvr.resource}.{gvr.group or 'core'}"
    if name.count(".") < 2 or dns1123_subdomain(name):
        raise DeclarationError(
            f'{label}: "{name}" is not a valid name of a webhook; it is a DNS name of three parts or more: check.foos.example.com'
        )
    path = options.get("path") or f"/{'mutate' if mutating else 'validate'}/{name}"
    if not path.startswith("/") or "?" in path or "#" in path:
        raise DeclarationError(f'{label}: path "{path}" must begin with a slash, and have neither query nor fragment')
    seconds = options.get("timeout_seconds", DEFAULT_TIMEOUT)
    if not 1 <= seconds <= _LONGEST_TIMEOUT:
        raise DeclarationError(f"{label}: timeout_seconds={seconds}; Kubernetes takes 1 to {_LONGEST_TIMEOUT}")
    if not mutating and "reinvocation_policy" in options:
        raise DeclarationError(f"{label}: only mutating webhooks are reinvoked; leave reinvocation_policy out")
    return AdmissionHook(name, path, mutating, kind, carried, subresource, calls, options)


def _calls(label: str, target: Any, options: HookOptions, body: type[Resource], *, mutating: bool) -> dict[str, HookCall]:
    wanted = options.get("operations")
    if isinstance(target, type):
        if wanted is not None:
            raise DeclarationError(f"{label}: the methods of a class define the operations; leave operations=... out")
        instance = target()
        calls = {one: getattr(instance, method) for one, method in _METHODS.items() if hasattr(instance, method)}
        if not calls:
            raise DeclarationError(f"{label} has no method of a webhook; define some of {', '.join(_METHODS.values())}")
    elif callable(target):
        operations: Sequence[str] = ("CREATE", "UPDATE") if wanted is None else wanted
        unknown = [one for one in operations if one not in OPERATIONS]
        if unknown or not operations or isinstance(wanted, str):
            raise DeclarationError(f"{label}: operations={described_word(wanted)}; it is a list of some of {', '.join(OPERATIONS)}")
        calls = dict.fromkeys(typing.cast("Sequence[Operation]", operations), target)
    else:
        raise DeclarationError(f"{label} is neither a function nor a class")
    if mutating and "DELETE" in calls:
        raise DeclarationError(f"{label}: an object that is being deleted cannot be changed; validate DELETE instead, or use a finalizer")
    return {operation: _call(label, function, body) for operation, function in calls.items()}


def _call(label: str, function: Callable[..., Any], body: type[Resource]) -> HookCall:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(function).parameters.values())
    places = [one for one in parameters if one.kind in positional]
    left = [one for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    required = [one for one in places if one.default is one.empty]
    if not places or len(required) > 2 or left:
        raise DeclarationError(f"{label}: a hook takes the object, and after it the request if it wants it: (foo: Foo, request)")
    declared = _annotation(function, places[0].name)
    if isinstance(declared, type) and issubclass(declared, Resource) and not issubclass(body, declared):
        raise DeclarationError(f"{label} takes a {declared.__name__}, but is declared for {body.__name__}")
    plain = not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)))  # noqa: B004 - an object with an async __call__
    return HookCall(function, len(places) > 1 and (len(required) > 1 or places[1].name == "request"), plain)


def _annotation(function: Callable[..., Any], name: str) -> Any:
    try:
        return typing.get_type_hints(function).get(name)
    except Exception:  # noqa: BLE001 - names that do not resolve yet: nothing can be checked
        return None


def _dashed(target: Any, label: str) -> str:
    """Return a name in lower case with dashes: ``Check.fooSpec_2`` becomes ``check-foo-spec-2``."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", getattr(target, "__name__", label))
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "hook"
