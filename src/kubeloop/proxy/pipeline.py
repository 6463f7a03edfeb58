"""The way of a request through the proxy: client, path, rules, and then the API server.

A request that no rule can concern passes unchanged, bytes in both directions. Whatever goes wrong ends with a Status: no failure shows an
object that a rule would have hidden or changed.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import ANONYMOUS, access_of
from kubeloop.endpoints.request_info import RequestInfo, request_info
from kubeloop.endpoints.responses import finish
from kubeloop.http1.errors import BodyMalformed, BodyTooLarge
from kubeloop.meta.errors import ApiError, NotAcceptable
from kubeloop.meta.kinds import GroupKind
from kubeloop.proxy.continuity import rules_changed
from kubeloop.proxy.encodings import ACCEPT_JSON, form_of
from kubeloop.proxy.error_responses import UpstreamRefused, own_refusal, upstream_refusal
from kubeloop.proxy.events import EventSelection, ObjectVisibility, is_events
from kubeloop.proxy.forwarding import forward, passed, target_of, upstream_headers
from kubeloop.proxy.hidden import StandIn
from kubeloop.proxy.identity import ClientIdentity, Identity
from kubeloop.proxy.open_watches import PassedEvents
from kubeloop.proxy.originals import original_of
from kubeloop.proxy.reads import ReadHandler, ReadServices
from kubeloop.proxy.rules import Rewritten, RuleSet
from kubeloop.proxy.scope import CONNECTING, OF_OBJECT, READS, ProxiedRequest, check_path, check_selectors, object_info
from kubeloop.proxy.selections import UNRULED, SelectedRules
from kubeloop.proxy.view import MalformedSelector
from kubeloop.proxy.write_mapping import (
    ReversedWrite,
    check_patch,
    check_reverse,
    checked_body,
    decoded_body,
    denied,
    denied_collection,
    mapped_back,
    withheld,
)
from kubeloop.reverseproxy.upgrade import is_upgrade
from kubeloop.serving.answer import Answer, Reply, StreamingResponse
from kubeloop.serving.request import Request
from kubeloop.timing import Clock, TimeLimit
from kubeloop.transport.round_tripper import OutgoingRequest
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.proxy.cached import CachedReads

_LOG = logging.getLogger("kubeloop.proxy")

#: Errors whose messages do not depend on the object's values.
_HARMLESS: Final = frozenset({401, 404, 405, 413, 415, 429})
#: Maximum bytes of the body of a write: that of a kube-apiserver. Bodies are read before the API server checks the client.
MAX_BODY: Final = 3 << 20
#: Seconds for which the proxy waits for such a body: a kube-apiserver's own limit for a request.
BODY_SECONDS: Final = 60.0
#: Headers of a write that the proxy replaces.
_OF_WRITE: Final = frozenset({"accept", "accept-encoding", "content-type", "content-encoding"})


@dataclass(slots=True)
class RulesInForce:
    """The rules that apply at the moment, and the rules that applied before in this process.

    Attributes:
        rules: The rules.
        earlier: Rules that applied before.
        fixed: The rules cannot change, so that watches need not be ended.
        unknown_before: Other rules, which are unknown, applied before this process started.
    """

    rules: RuleSet = field(default_factory=lambda: RuleSet((), ""))
    earlier: list[RuleSet] = field(default_factory=list)
    fixed: bool = True
    unknown_before: bool = False

    def concerned_before(self, group: str, version: str, resource: str) -> bool:
        """Return whether earlier rules could have changed objects of a resource."""
        return self.unknown_before or any(concerns(rules, group, version, resource) for rules in self.earlier)


def concerns(rules: RuleSet, group: str, version: str, resource: str) -> bool:
    """Return whether rules can change what clients see of a resource.

    Args:
        rules: The rules.
        group: Group of the resource.
        version: Version of the resource.
        resource: Name of the resource in paths.
    """
    return rules.could_match(group, version, resource) or (rules.may_hide and is_events(group, resource))


class ObjectHidden(Exception):
    """A rule hides the object that a request is about."""


class ProxyPipeline:
    """Handles the requests of a proxy. ``handle`` is the handler of its listener.

    Args:
        identity: Finds the client of each request.
        services: The parts that reads share.
        rules: The rules in force; a reload replaces its content.
    """

    def __init__(self, identity: Identity, services: ReadServices, rules: RulesInForce) -> None:
        self._identity = identity
        self._services = services
        self._upstream = services.upstream
        self._rules = rules
        self._reader = ReadHandler(services)
        #: Answers reads in caching mode.
        self.cached: CachedReads | None = None
        self._visibility = ObjectVisibility(services.upstream, services.clock)
        #: Number of responses by HTTP status, and of requests that passed unchanged.
        self.statuses: Counter[int] = Counter()
        self.passed = 0

    async def handle(self, request: Request) -> Reply:
        """Return the reply to a request."""
        try:
            reply = await self._reply(request)
        except UpstreamRefused as refused:
            reply = refused.reply
        except ApiError as error:
            reply = own_refusal(error)
        except BodyTooLarge as error:
            reply = own_refusal(api_errors.too_large(error.limit))
        except BodyMalformed as error:
            reply = own_refusal(api_errors.bad_request(str(error)))
        if isinstance(reply, Answer):
            finish(request, reply)
        self.statuses[getattr(reply, "status", 101)] += 1
        return reply

    async def _reply(self, request: Request) -> Reply:
        if self._rules.rules.rules:
            check_selectors(request)
        info = request_info(request)
        caller = await self._identity.identify(request)
        rules = self._rules.rules  # after the wait, in which others may have been loaded
        if self._rules.fixed and not rules.rules:
            if self.cached is not None and info.is_resource and info.verb in READS:
                reply = await self.cached.read(ProxiedRequest(request, info, caller, caller.user or ANONYMOUS), None)
                if reply is not None:
                    return reply
            self.passed += 1
            return await forward(self._upstream, request, caller, document=_is_document(info))
        check_path(request, info)
        if not info.is_resource:
            self.passed += 1
            return await forward(self._upstream, request, caller)
        user = await self._identity.resolve(request, caller) if rules.uses_users else caller.user or ANONYMOUS
        scope = ProxiedRequest(request, object_info(info), caller, user)
        if info.subresource not in OF_OBJECT:
            return await self._subresource(scope)
        if info.verb in READS:
            return await self._read(scope)
        return await self._write(scope)

    async def _forward(self, scope: ProxiedRequest) -> Reply:
        self.passed += 1
        return await forward(self._upstream, scope.request, scope.caller, document=_is_document(scope.info))

    # ---------------------------------------------------------------------------------------------------------- reads

    async def _read(self, scope: ProxiedRequest) -> Reply:
        info = scope.info
        if is_upgrade(scope.request):
            raise api_errors.bad_request(f"{info.verb} does not upgrade connections")
        rules = self._rules.rules
        selection: SelectedRules | None = scope.select(rules)
        if rules.may_hide and is_events(info.group, info.resource):
            agent = scope.request.header("User-Agent")
            selection = EventSelection(selection, rules, scope.user, agent, self._visibility)
        if selection is None and self._rules.concerned_before(info.group, info.version, info.resource):
            selection = UNRULED  # lists are remembered for the watches that follow
        if self.cached is not None:
            reply = await self.cached.read(scope, selection)
            if reply is not None:
                return reply
            if rules is not self._rules.rules:
                raise rules_changed()  # the rules were loaded again while the cache was asked
        if selection is None:
            return await self._read_unruled(scope)
        if scope.request.method == "HEAD":
            raise api_errors.method_not_allowed()  # as a kube-apiserver; others could tell an object's existence and size
        try:
            match info.verb:
                case "list":
                    return await self._reader.list_objects(scope, selection)
                case "watch":
                    return await self._reader.watch(scope, selection)
            return await self._reader.get(scope, selection)
        except (NotAcceptable, MalformedSelector) as error:
            return await self._refused_read(scope, selection, error)

    async def _refused_read(self, scope: ProxiedRequest, selection: SelectedRules, error: ApiError) -> Reply:
        """Return the API server's refusal of a read that the proxy cannot serve. A hidden object gets that of a missing one."""
        original = await original_of(self._upstream, scope)
        if original is not None:
            try:
                await self._check_visible(scope, selection, original.tree)
            except ObjectHidden:
                stand_in = StandIn.of(scope, b"")
                return await stand_in.disguised(await self._refused(stand_in.scope, error))
        return await self._refused(scope, error)

    async def _refused(self, scope: ProxiedRequest, error: ApiError) -> Reply:
        """Return the API server's refusal, which checks the client's rights first. Raises ``error`` if it serves the request."""
        reply = await forward(self._upstream, scope.request, scope.caller, document=True)
        if not isinstance(reply, Answer | StreamingResponse) or reply.status < 400:
            if not isinstance(reply, Answer):
                reply.close()
            raise error
        return reply

    async def _read_unruled(self, scope: ProxiedRequest) -> Reply:
        """Pass a read that no rule concerns. A watch can end later, when rules come to concern it."""
        info, request, caller = scope.info, scope.request, scope.caller
        self.passed += 1
        if info.verb != "watch":
            return await forward(self._upstream, request, caller, document=_is_document(info))
        rules = self._rules.rules
        sent = OutgoingRequest(request.method, target_of(request), upstream_headers(request, caller), None)
        answer = await self._upstream.send(sent, as_proxy=caller.as_proxy)
        if answer.status != 200 or answer.headers.get("Content-Encoding"):
            return await passed(answer, request)
        if rules is not self._rules.rules:
            answer.close()  # the rules were loaded again meanwhile
            raise rules_changed()
        opened = self._services.watches.add(answer, info.group, info.version, info.resource)
        media_type = answer.headers.get("Content-Type", "")
        return await passed(answer, request, PassedEvents(opened, media_type))

    # --------------------------------------------------------------------------------------------------- subresources

    async def _subresource(self, scope: ProxiedRequest) -> Reply:
        """Answer a request for a subresource. That of a hidden object does not exist either."""
        info = scope.info
        of_object = scope.select(self._rules.rules, verb="get", subresource="")
        own = scope.select(self._rules.rules, verb="" if info.verb in READS else "get")
        if of_object is None and own is None:
            return await self._forward(scope)
        original = await original_of(self._upstream, scope)
        if original is not None and not self._services.dry_run:
            try:
                touched = await self._check_visible(scope, of_object, original.tree)
                if own is not None:
                    touched += await self._check_visible(scope, own, original.tree, streams=info.subresource in CONNECTING)
                if info.verb not in READS and info.subresource not in CONNECTING and (rules := _denying(touched, of_object, own)):
                    raise denied(access_of(scope.user, info), rules)
            except ObjectHidden:
                return await self._subresource_of_missing(scope, own)
            except ApiError:
                if original.is_readable:
                    raise
                # To a client without any right to the object this would tell that the object exists.
                answer = await self._subresource_of_missing(scope, own)
                if answer.status == 403:
                    return answer
                raise
        return await self._of_subresource(scope, own)

    async def _of_subresource(self, scope: ProxiedRequest, selection: SelectedRules | None) -> Reply:
        info = scope.info
        if selection is None or info.subresource in CONNECTING or self._services.dry_run:
            return await self._forward(scope)
        if info.verb not in READS:
            return await self._sent(scope, selection, await _body_of(scope.request, self._services.clock))
        try:
            return await self._reader.get(scope, selection)
        except NotAcceptable as error:
            return await self._refused(scope, error)

    async def _subresource_of_missing(self, scope: ProxiedRequest, selection: SelectedRules | None) -> Answer | StreamingResponse:
        stand_in = StandIn.of(scope, b"" if is_upgrade(scope.request) else await _body_of(scope.request, self._services.clock))
        return await stand_in.disguised(await self._of_subresource(stand_in.scope, selection))

    async def _check_visible(
        self, scope: ProxiedRequest, selection: SelectedRules | None, tree: JSONObject, *, streams: bool = False
    ) -> tuple[str, ...]:
        """Return the rules that touch an object.

        Raises:
            ObjectHidden: They hide it.
            ApiError: 403: they would change the content of a stream (``streams``), which cannot be done.
        """
        if selection is None:
            return ()
        info = scope.info
        result = await self._reader.view(scope, selection).see_async(tree)
        if result.object is None:
            raise ObjectHidden
        if streams and result.changed:
            rules = ", ".join(result.rules)
            raise api_errors.forbidden(
                info.group_resource,
                info.name,
                f"the proxy's rule {rules} changes {info.subresource}, which is a stream: it can only drop it",
            )
        return result.rules

    # --------------------------------------------------------------------------------------------------------- writes

    async def _write(self, scope: ProxiedRequest) -> Reply:
        info = scope.info
        by_verb = scope.select(self._rules.rules)
        if (info.group, info.resource, info.verb) == ("", "bindings", "create") and self._may_touch_pods(scope):
            raise api_errors.bad_request("the proxy does not serve the deprecated path /bindings; use /pods/NAME/binding")
        # The response of a write shows the object, as a get does.
        selection = scope.select(self._rules.rules, verb="get") or by_verb
        if selection is None or self._services.dry_run:
            return await self._forward(scope)
        if info.verb == "deletecollection":
            # The API server cannot evaluate selectors on what the client sees.
            if _policy(selection, by_verb) == "Deny" or selection.may_hide or self._reader.view(scope, selection).selects:
                raise denied_collection(access_of(scope.user, info), selection.rules)
            return await self._sent(scope, selection, await _body_of(scope.request, self._services.clock))
        body = await _body_of(scope.request, self._services.clock)
        original = await original_of(self._upstream, scope)
        if original is None:
            body, content_type = await self._checked_creation(scope, selection, body)
            return await self._sent(scope, selection, body, content_type)
        result = await self._reader.view(scope, selection).see_async(original.tree)
        if result.object is None:
            await self._checked_creation(scope, selection, body)
            return await self._write_of_missing(scope, selection, body)
        rules = _denying(result.rules, selection)
        if by_verb is not None and by_verb.writes == "Deny" and by_verb is not selection:
            touching = (await self._reader.view(scope, by_verb).see_async(original.tree)).rules
            rules = tuple(dict.fromkeys((*rules, *_denying(touching, by_verb))))
        if rules:
            if not original.is_readable:
                answer = await self._write_of_missing(scope, selection, body)
                if answer.status == 403:
                    return answer  # a client without any right to the object must not learn that it exists
            raise denied(access_of(scope.user, info), rules)
        if selection.policy_of(result.rules) == "Reverse" and info.verb == "update":
            body = await self._reversed(scope, selection, original.tree, result, body)
            return await self._sent(scope, selection, body, ACCEPT_JSON, withhold=result.rules)
        if result.rules and info.verb == "patch":
            check_patch(selection, body, scope.request.header("Content-Type"), access_of(scope.user, info))
        return await self._sent(scope, selection, body, withhold=result.rules)

    def _may_touch_pods(self, scope: ProxiedRequest) -> bool:
        of_pods = dataclasses.replace(scope, info=msgspec.structs.replace(scope.info, resource="pods", name=""))
        return of_pods.select(self._rules.rules, verb="get") is not None

    async def _write_of_missing(self, scope: ProxiedRequest, selection: SelectedRules, body: bytes) -> Answer | StreamingResponse:
        stand_in = StandIn.of(scope, body)
        return await stand_in.disguised(await self._sent(stand_in.scope, selection, stand_in.body))

    async def _checked_creation(self, scope: ProxiedRequest, selection: SelectedRules, body: bytes) -> tuple[bytes, str]:
        """Check a write that may create an object. Return body and media type to send.

        Raises:
            ApiError: 403: the rules would touch the object, and deny writes. 400 or 415: they cannot be applied to the body.
        """
        info = scope.info
        content_type = scope.request.header("Content-Type")
        creates = info.verb in ("create", "update") or (info.verb == "patch" and content_type.startswith("application/apply-patch"))
        if selection.writes != "Deny" or not creates:
            return body, ""
        tree, body, media_type = checked_body(body, content_type)
        if isinstance(tree.get("metadata"), dict):
            # The API server takes the namespace of the path.
            metadata = tree["metadata"] | {"namespace": info.namespace} if info.namespace else tree["metadata"]
            result = await self._reader.view(scope, selection).see_async(tree | {"metadata": metadata})
            if rules := _denying(result.rules, selection):
                raise denied(access_of(scope.user, info), rules)
        return body, media_type

    async def _reversed(self, scope: ProxiedRequest, selection: SelectedRules, original: JSONObject, seen: Rewritten, body: bytes) -> bytes:
        """Return the body of an update, mapped back to the API server's object.

        Args:
            scope: The request.
            selection: The rules for the response.
            original: The API server's object.
            seen: What the client sees of it.
            body: The body that the client sent.

        Raises:
            ApiError: 422: it cannot be mapped back. 400: it is no object.
        """
        assert seen.object is not None
        written = decoded_body(body, scope.request.header("Content-Type"))
        if written is None or not isinstance(written.get("metadata"), dict):
            raise api_errors.bad_request("the body of the update is not an object that the proxy can read")
        rules = tuple(rule for rule in self._rules.rules.rules if rule.name in seen.rules)
        write = ReversedWrite(GroupKind(scope.info.group, str(original.get("kind", ""))), scope.info.name, rules)
        mapped = mapped_back(original, seen.object, written, write)
        again = await self._reader.view(scope, selection).see_async(mapped)
        check_reverse(again, seen.object, written, write)
        return msgspec.json.encode(mapped)

    async def _sent(
        self, scope: ProxiedRequest, selection: SelectedRules, body: bytes, content_type: str = "", *, withhold: tuple[str, ...] = ()
    ) -> Reply:
        """Send a write, and return the response as the client may see it.

        Args:
            scope: The request.
            selection: The rules for the response.
            body: The body.
            content_type: The media type of a body that the proxy has written. Empty: that of the request.
            withhold: The rules that touch the object: messages of errors are withheld, because they could quote original values.
        """
        request, caller = scope.request, scope.caller
        form = form_of(request.header("Accept"), "get")
        of_collection = scope.info.verb == "deletecollection"
        headers = [*upstream_headers(request, caller, without=_OF_WRITE), ("Accept", ACCEPT_JSON if of_collection else form.accept)]
        headers.append(("Content-Type", content_type or request.header("Content-Type") or ACCEPT_JSON))
        target = target_of(request)
        answer = await self._upstream.send(OutgoingRequest(request.method, target, headers, body or None), as_proxy=caller.as_proxy)
        if answer.status >= 300:
            refusal = await upstream_refusal(answer, request)
            if withhold and isinstance(refusal, Answer) and refusal.object is not None and answer.status not in _HARMLESS:
                refusal.object = withheld(refusal.object, withhold)
            return refusal
        if of_collection:
            return await self._reader.collection_reply(scope, self._reader.view(scope, selection), answer)
        return await self._reader.object_reply(scope, self._reader.view(scope, selection), form, answer, written=True)


async def _body_of(request: Request, clock: Clock) -> bytes:
    """Return the body of a write.

    Raises:
        ApiError: 504: it did not arrive in time.
        BodyTooLarge: No API server would accept it.
        BodyMalformed: Its framing is invalid.
    """
    try:
        async with TimeLimit(clock, BODY_SECONDS):
            return await request.read_body(MAX_BODY)
    except TimeoutError:
        raise api_errors.refusal(504, "Timeout", "the body of the request did not arrive in time") from None


def _is_document(info: RequestInfo) -> bool:
    """Return whether the response to a request is one object or list. Logs and responses of proxied services may be streams."""
    return info.is_resource and info.subresource in OF_OBJECT and info.verb not in ("watch", "proxy")


def _denying(touching: Iterable[str], *selections: SelectedRules | None) -> tuple[str, ...]:
    """Return which of the rules that touch an object deny writes of it, each once."""
    chosen = [selection for selection in selections if selection is not None]
    return tuple(name for name in dict.fromkeys(touching) if any(selection.policy_of((name,)) == "Deny" for selection in chosen))


def _policy(*selections: SelectedRules | None) -> str:
    """Return the strictest policy for writes."""
    policies = {selection.writes for selection in selections if selection is not None}
    return next(policy for policy in ("Deny", "Reverse", "Pass") if policy in policies)


__all__ = ["ClientIdentity", "ProxyPipeline", "RulesInForce"]
