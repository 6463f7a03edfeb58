"""Conversion: functions that convert one version of a kind to another, and the responses to ConversionReviews."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubeloop.codec import decode, encode
from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.webhooks.admission import Answered, Failed, HookPartError, contained
from kubeloop.controller.webhooks.request import Denied, ReviewMalformed, checked_version
from kubeloop.meta import ApiError, DecodeError, KubeloopError, ObjectMeta, Resource, Unstructured
from kubeloop.meta.kinds import GroupKind, GroupVersion
from kubeloop.meta.resource import kind_info
from kubeloop.meta.type_checks import described_word
from kubeloop.types import JSONObject

# Converters between versions of a kind, and the parts of an object's metadata that they may change.
#
# Source: Kubernetes, "Versions in CustomResourceDefinitions": of metadata only labels and annotations may change.


@dataclass(frozen=True, slots=True)
class VersionConverter:
    """A function that converts one version of a kind to another."""

    source: type[Resource]
    target: type[Resource]
    function: Callable[[Any], Any]

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__name__)


class Converters:
    """The converters of a program, by kind.

    Guarantees
        The shortest chain of converters is used, so converters to and from one hub version are enough.
        Name, namespace, uid, owner references and all other metadata are taken from the incoming object, unknown fields included; labels
        and annotations come from the converter if it returned metadata.
    """

    def __init__(self) -> None:
        self._kinds: dict[GroupKind, dict[str, dict[str, VersionConverter]]] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def add(self, source: type[Resource], target: type[Resource], function: Callable[[Any], Any]) -> None:
        """Add a converter.

        Raises:
            DeclarationError: the classes are not two versions of one kind, they have a converter already, or ``function`` is an
                ``async def``.
        """
        step = VersionConverter(source, target, function)
        given: tuple[Any, ...] = (source, target)
        for cls in given:
            if not (isinstance(cls, type) and issubclass(cls, Resource) and cls.kind):
                raise DeclarationError(
                    f"{step.name}: {described_word(cls)} is not a kind; give classes such as FooV1, or Unstructured.for_kind(...)"
                )
        old, new = kind_info(source).gvk, kind_info(target).gvk
        if (old.group, old.kind) != (new.group, new.kind) or old.version == new.version:
            raise DeclarationError(f"{step.name}: {old} and {new} are not two versions of one kind")
        if inspect.iscoroutinefunction(function):
            raise DeclarationError(f"{step.name}: a converter only computes; make it a plain def")
        versions = self._kinds.setdefault(GroupKind(old.group, old.kind), {})
        known = versions.setdefault(old.version, {}).get(new.version)
        if known is not None:
            raise DeclarationError(f"{step.name}: {known.name} converts {old} to {new.version} already")
        versions[old.version][new.version] = step

    def kinds(self) -> dict[GroupKind, list[str]]:
        """Return the kinds with their versions, sorted."""
        return {kind: sorted({*steps, *(to for ways in steps.values() for to in ways)}) for kind, steps in self._kinds.items()}

    def definitions(self) -> list[str]:
        """Return the names of the kinds' CustomResourceDefinitions.

        Raises:
            DeclarationError: no class of a kind names its plural.
        """
        found = []
        for kind, steps in self._kinds.items():
            classes = [cls for ways in steps.values() for step in ways.values() for cls in (step.source, step.target)]
            plural = next((info.plural for cls in classes if (info := kind_info(cls)).plural), None)
            if plural is None:
                raise DeclarationError(f'{kind}: give the plural to one of its classes, as in Unstructured.for_kind(..., plural="...")')
            found.append(f"{plural}.{kind.group}")
        return found

    def check(self) -> None:
        """Raise DeclarationError if a version of a kind cannot be reached from another; the message names the missing converter."""
        for kind, versions in self.kinds().items():
            for old in versions:
                for new in versions:
                    if old != new and self._way(kind, old, new) is None:
                        raise DeclarationError(
                            f"{kind}: nothing converts {old} to {new}; add a converter, or one each to and from a version in between"
                        )

    def convert(self, document: bytes, api_version: str) -> bytes:
        """Return the object in another version, as JSON.

        Raises:
            DecodeError: the document is not an object, or there is no converter.
            TypeError: a converter returned another type.
            Inside: a converter raised an error. A ``KubeloopError`` of a converter is raised as it is.
        """
        head = _read_head(document)
        if head.api_version == api_version:
            return document
        group, old = GroupVersion.parse(head.api_version)
        wanted_group, new = GroupVersion.parse(api_version)
        kind = GroupKind(group, head.kind)
        way = self._way(kind, old, new) if group == wanted_group else None
        if way is None:
            raise DecodeError(f"nothing converts {head.kind} of {head.api_version} to {api_version}")
        obj: Resource = decode(way[0].source, document, checked=True)
        for step in way:
            obj = _converted(step, obj)
        return _with_metadata(document, obj)

    def _way(self, kind: GroupKind, old: str, new: str) -> list[VersionConverter] | None:
        """Return the shortest chain of converters; among equally short chains, the chain that was declared first."""
        steps = self._kinds.get(kind, {})
        ways: deque[tuple[str, list[VersionConverter]]] = deque([(old, [])])
        seen = {old}
        while ways:
            at, way = ways.popleft()
            for to, step in steps.get(at, {}).items():
                if to == new:
                    return [*way, step]
                if to not in seen:
                    seen.add(to)
                    ways.append((to, [*way, step]))
        return None


def _converted(step: VersionConverter, obj: Resource) -> Resource:
    if type(obj) is not step.source:  # the previous converter returned another class of that version
        obj = decode(step.source, encode(obj), checked=True)
    try:
        made = step.function(obj)
    except (KubeloopError, SystemExit):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a program raises
        raise HookPartError(f"{step.name} of {obj.kind} {obj.object_key()}", error) from None
    if isinstance(made, dict) and issubclass(step.target, Unstructured):
        made = step.target.from_dict({**made, "apiVersion": step.target.api_version, "kind": step.target.kind})
    if not isinstance(made, Resource) or (made.api_version, made.kind) != (step.target.api_version, step.target.kind):
        shown = f"{made.api_version}, Kind={made.kind}" if isinstance(made, Resource) else type(made).__name__
        raise TypeError(f"converter {step.name} returned {shown}, not {step.target.api_version}, Kind={step.target.kind}")
    if made.metadata == ObjectMeta():
        made.metadata = obj.metadata
    return made


def _with_metadata(document: bytes, made: Resource) -> bytes:
    """Return ``made`` as JSON with the metadata of the original document, except for labels and annotations."""
    before: Any = msgspec.json.decode(document).get("metadata")
    kept: JSONObject = dict(before) if isinstance(before, dict) else {}
    for name, given in (("labels", made.metadata.labels), ("annotations", made.metadata.annotations)):
        if given != (kept.get(name) or {}):
            kept[name] = given
            if not given:
                del kept[name]
    tree: JSONObject = msgspec.json.decode(encode(made))
    if kept or "metadata" in tree:
        tree["metadata"] = kept
    return msgspec.json.encode({"apiVersion": made.api_version, "kind": made.kind, **tree})


class _Head(msgspec.Struct):
    api_version: str = msgspec.field(name="apiVersion")
    kind: str


_HEAD = msgspec.json.Decoder(_Head)


def _read_head(document: bytes) -> _Head:
    try:
        return _HEAD.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"an item to convert is not an object: {error}") from None


CONVERT_PATH: Final = "/convert"
_GROUP: Final = "apiextensions.k8s.io"
#: Number of objects after which other tasks run.
_AT_ONCE: Final = 50


class _Request(msgspec.Struct):
    uid: str
    wanted: str = msgspec.field(name="desiredAPIVersion")
    objects: list[msgspec.Raw] | None = None


class _Review(msgspec.Struct):
    api_version: str = msgspec.field(name="apiVersion")
    kind: str
    request: _Request | None = None


_REVIEWS = msgspec.json.Decoder(_Review)


async def answer_conversion(converters: Converters, body: bytes, seconds: float) -> Answered:
    """Return the ConversionReview that answers the one in ``body``, of the same version and uid, with the objects in their order.

    Raises:
        ReviewMalformed: ``body`` is not a review.
    """
    try:
        review = _REVIEWS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReviewMalformed(f"the body is not a ConversionReview: {error}") from None
    version = checked_version(review.api_version, review.kind, _GROUP, "ConversionReview")
    request = review.request
    if request is None or not request.uid:
        raise ReviewMalformed("the ConversionReview has no request with a uid")
    made: list[msgspec.Raw] = []
    panic, code = False, 200
    result: JSONObject = {"status": "Success"}
    try:
        made = await contained("convert", lambda: _answer(converters, request), seconds, wanted=request.wanted)
    except (Denied, ApiError) as error:
        code, result = 422, {"status": "Failure", "message": str(error), "code": 422}
    except Failed as failure:
        panic, code = failure.panic, failure.status.code
        result = {"status": "Failure", "message": str(failure), "reason": failure.status.reason, "code": code}
    response: JSONObject = {"uid": request.uid, "convertedObjects": made, "result": result}
    answer = {"apiVersion": f"{_GROUP}/{version}", "kind": "ConversionReview", "response": response}
    return Answered(msgspec.json.encode(answer), code, panic)


async def _answer(converters: Converters, request: _Request) -> list[msgspec.Raw]:
    made = []
    for number, raw in enumerate(request.objects or (), 1):
        made.append(msgspec.Raw(converters.convert(bytes(raw), request.wanted)))
        if not number % _AT_ONCE:
            await asyncio.sleep(0)
    return made
