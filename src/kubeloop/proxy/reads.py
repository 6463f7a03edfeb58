"""Gets, lists and watches as a client may see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_plus

from kubeloop.codec.frames import FrameSplitter
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.negotiation import JSON, PROTOBUF
from kubeloop.endpoints.responses import compress_list, status_object
from kubeloop.endpoints.tables import INCLUDE_OBJECT
from kubeloop.http1.headers import Headers
from kubeloop.meta.errors import ApiError, DecodeError, TransportError
from kubeloop.meta.strconv import decimal
from kubeloop.proxy.continuity import Continuity, Key, rules_changed
from kubeloop.proxy.encodings import ACCEPT_JSON, Form, event_frame, form_of, protobuf_of, shaped
from kubeloop.proxy.error_responses import headers_without_body, upstream_refusal
from kubeloop.proxy.forwarding import path_of, upstream_headers
from kubeloop.proxy.lists import ListRewriter, begin, joined, rewritten_list
from kubeloop.proxy.open_watches import UpstreamWatch, UpstreamWatches
from kubeloop.proxy.pages import further_pages, page_query, with_parameters
from kubeloop.proxy.scope import ProxiedRequest
from kubeloop.proxy.selections import SelectedRules
from kubeloop.proxy.tables import PrinterColumns, TablePages, TableRewriter
from kubeloop.proxy.upstream import MAX_OBJECT, Upstream, bad_gateway, body_of, chunks_of, is_json, parsed
from kubeloop.proxy.view import ClientView, RuleCounters
from kubeloop.proxy.watches import WatchRewriter
from kubeloop.serving.answer import Aborted, Answer, Reply, StreamingResponse
from kubeloop.serving.request import Request
from kubeloop.timing import Clock
from kubeloop.transport.connection import PooledAnswer
from kubeloop.transport.round_tripper import OutgoingRequest
from kubeloop.types import JSONObject

#: Header that names the rules that touched the objects of a response.
RULES_HEADER: Final = "Kubeloop-Rules"
#: Headers of requests that would give a response whose objects the proxy cannot read.
_OWN: Final = frozenset({"accept", "accept-encoding", "if-none-match", "if-modified-since", "range"})
#: The verbs whose requests can have selectors.
_SELECTING: Final = frozenset({"list", "watch", "deletecollection"})
#: Maximum bytes of a Table, which is read whole: 100,000 rows with objects of 7 KB.
_MAX_TABLE: Final = 1 << 30
#: Objects per page when the proxy looks up which objects a client can see.
_PAGE: Final = 500


@dataclass(slots=True)
class ReadServices:
    """The parts of a proxy that reads share.

    Attributes:
        upstream: The API server.
        continuity: Remembers lists for the watches that follow.
        watches: The open watches, which a reload ends.
        columns: The printer columns of custom resources.
        counters: Counts what rules do.
        clock: For ages.
        dry_run: Log what rules would change, and change nothing.
        explain: Name the rules that touched a response in a header.
    """

    upstream: Upstream
    continuity: Continuity
    watches: UpstreamWatches
    columns: PrinterColumns
    counters: RuleCounters
    clock: Clock
    dry_run: bool = False
    explain: bool = False


class ReadHandler:
    """Answers reads of resources to which rules apply."""

    def __init__(self, services: ReadServices) -> None:
        self._services = services
        self._upstream = services.upstream

    def view(self, scope: ProxiedRequest, selection: SelectedRules) -> ClientView:
        """Return what the client of a request sees of the objects.

        Raises:
            MalformedSelector: The request selects objects, and its selector cannot be parsed.
        """
        selects = scope.info.verb in _SELECTING
        return ClientView(selection, scope.request, self._services.counters, selects=selects, dry_run=self._services.dry_run)

    async def get(self, scope: ProxiedRequest, selection: SelectedRules) -> Reply:
        """Return one object.

        Raises:
            ApiError: 404: it is hidden. Other codes: see ``Upstream.send``; a rule failed.
        """
        form = form_of(scope.request.header("Accept"), "get")
        view = self.view(scope, selection)
        answer = await self._send(scope, view.query, form)
        if answer.status != 200:
            return await upstream_refusal(answer, scope.request)
        return await self.object_reply(scope, view, form, answer)

    async def object_reply(
        self, scope: ProxiedRequest, view: ClientView, form: Form, answer: PooledAnswer, *, written: bool = False
    ) -> Reply:
        """Return the object in a successful response as the client may see it.

        Args:
            scope: The request.
            view: What the client sees.
            form: The form of the response.
            answer: The API server's response.
            written: The request was a write: a hidden object gives a Status of success, since the write is done.

        Raises:
            ApiError: See ``get``.
        """
        headers, status = answer.headers, answer.status
        body = await body_of(answer, scope.request.path, MAX_OBJECT)
        if not is_json(headers):
            raise bad_gateway("the API server sent another media type than JSON, so that the rules cannot be applied")
        tree = parsed(body)
        if tree.get("kind") == "Status" and tree.get("apiVersion") == "v1":
            return self._answer(tree, form, headers, view, status)
        if tree.get("kind") == "Table" and form.is_table:
            document = await self._table(scope, view).rewrite(tree)
            if tree.get("rows") and not document["rows"]:
                return self._gone(scope, form, headers, view, written=written)
            return self._answer(document, form, headers, view, status)
        result = await view.see_async(tree)
        if result.object is None:
            return self._gone(scope, form, headers, view, written=written)
        if not result.changed and form.is_plain_json:
            return Answer(status, body=body.removesuffix(b"\n"), content_type=JSON, headers=self._headers(headers, view))
        return self._answer(shaped(result.object, form), form, headers, view, status)

    async def collection_reply(self, scope: ProxiedRequest, view: ClientView, answer: PooledAnswer) -> Reply:
        """Return the deleted objects in a response as the client may see them.

        Raises:
            ApiError: See ``get``.
        """
        form = form_of(scope.request.header("Accept"), "list")
        body = await body_of(answer, scope.request.path, _MAX_TABLE)
        if not is_json(answer.headers):
            raise bad_gateway("the API server sent another media type than JSON, so that the rules cannot be applied")
        tree = parsed(body)
        if tree.get("kind") != "Status":
            rewriter = ListRewriter(view, Form(JSON), collect=False)
            tree = parsed(await rewriter.feed(body) + await rewriter.finish())
        return self._answer(tree, Form(form.media_type), answer.headers, view, answer.status)

    async def list_objects(self, scope: ProxiedRequest, selection: SelectedRules) -> Reply:
        """Return the objects of a resource, page by page as the client asked for them.

        Raises:
            ApiError: See ``get``.
        """
        request = scope.request
        form = form_of(request.header("Accept"), "list")
        view = self.view(scope, selection)
        generation = self._services.continuity.generation
        answer = await self._send(scope, view.query, form)
        if answer.status != 200:
            return await upstream_refusal(answer, request)
        if not is_json(answer.headers):
            answer.close()
            raise bad_gateway("the API server sent another media type than JSON, so that the rules cannot be applied")
        if form.is_table:
            return await self._table_list(scope, view, form, answer, generation)
        is_first = not request.parameter("continue")
        limit = _limit(request, view)
        rewriter = ListRewriter(view, form, collect=is_first and not view.is_constant, joins_pages=bool(limit))
        pages = self._filled(scope, view, form, rewriter, limit, answer) if limit else rewritten_list(chunks_of(answer), rewriter)
        parts = self._recorded(pages, rewriter, scope, generation, is_first=is_first)
        try:
            first, complete = await begin(parts)
        except TransportError as error:
            raise bad_gateway("the API server's list broke off") from error
        except BaseException:
            await parts.aclose()
            raise
        headers = self._headers(answer.headers, view, begun=not complete)
        if form.media_type != JSON:
            # Protobuf and YAML cannot be written item by item: their beginning has the length of the whole.
            try:
                rest = b"" if complete else b"".join([part async for part in parts])
            except TransportError as error:
                raise bad_gateway("the API server's list broke off") from error
            return _encoded(parsed(first + rest), form, headers, 200)
        if complete:
            return Answer(body=first.removesuffix(b"\n"), content_type=JSON, headers=headers)
        reply = StreamingResponse(_or_aborted(joined(first, parts)), JSON, headers, close=answer.close)
        compress_list(request, reply)
        return reply

    async def watch(self, scope: ProxiedRequest, selection: SelectedRules) -> Reply:
        """Return the events of a resource.

        Raises:
            ApiError: See ``get``. 410: the client must list again.
        """
        request, services = scope.request, self._services
        form = form_of(request.header("Accept"), "watch")
        view = self.view(scope, selection)
        if form.media_type == PROTOBUF and not form.is_metadata and await self._is_custom(scope):
            raise api_errors.not_acceptable((JSON,))
        version = request.parameter("resourceVersion")
        visible: set[Key] = set()
        generation = services.continuity.generation
        if version not in ("", "0") and request.parameter("sendInitialEvents") not in ("true", "1"):
            await self.check_continuity(scope, version)
            if not view.is_constant:
                visible = await self._visible_at(scope, view, version)
        answer = await self._send(scope, view.query, form)
        if answer.status != 200:
            return await upstream_refusal(answer, request)
        if generation != services.continuity.generation:
            answer.close()  # the rules were loaded again meanwhile
            raise rules_changed()
        opened = services.watches.add(answer, scope.info.group, scope.info.version, scope.info.resource)
        rewriter = WatchRewriter(view, form, visible, self._table(scope, view) if form.is_table else None)
        content_type = f"{PROTOBUF};stream=watch" if form.media_type == PROTOBUF else JSON
        headers = self._headers(answer.headers, view, begun=True)
        return StreamingResponse(_events(opened, rewriter, form), content_type, headers, close=opened.close)

    async def _is_custom(self, scope: ProxiedRequest) -> bool:
        """Return whether a custom resource is read, whose objects have no protobuf form."""
        return await self._services.columns.get(scope.info.group_resource, scope.info.version) is not None

    async def check_continuity(self, scope: ProxiedRequest, version: str) -> None:
        """Check that the client of a watch has got its objects under the present rules. Raises ApiError 410 if not."""

        async def newest() -> int:
            target = f"{path_of(scope.request)}?limit=1"
            body = await self._upstream.read(target, self._request_headers(scope, ACCEPT_JSON), as_proxy=scope.caller.as_proxy)
            found = str((parsed(body).get("metadata") or {}).get("resourceVersion", ""))
            return int(found) if found.isdecimal() else 0

        await self._services.continuity.check(scope.list_scope(), version, newest)

    async def _visible_at(self, scope: ProxiedRequest, view: ClientView, version: str) -> set[Key]:
        """Return the objects that the client can see at a version."""
        known = self._services.continuity.visible(scope.list_scope(), version)
        if known is not None:
            return known
        kept = [pair for pair in view.query.split("&") if unquote_plus(pair.partition("=")[0]) in ("labelSelector", "fieldSelector")]
        base = "&".join([*kept, f"resourceVersion={version}", "resourceVersionMatch=Exact", f"limit={_PAGE}"])
        visible: set[Key] = set()
        query = base
        while True:
            target = f"{path_of(scope.request)}?{query}"
            answer = await self._upstream.send(
                OutgoingRequest("GET", target, self._request_headers(scope, ACCEPT_JSON), None), as_proxy=scope.caller.as_proxy
            )
            if answer.status != 200:
                await body_of(answer, target, MAX_OBJECT)  # raises the API server's error, among them 410
            rewriter = ListRewriter(view, Form(JSON), collect=True)
            try:
                async for _ in rewritten_list(chunks_of(answer), rewriter):
                    pass
            except TransportError as error:
                raise bad_gateway("the API server's list broke off") from error
            visible |= rewriter.keys or set()
            if not rewriter.continue_token:
                return visible
            query = "&".join([*kept, f"limit={_PAGE}", f"continue={quote(rewriter.continue_token, safe='')}"])

    async def _send(self, scope: ProxiedRequest, query: str, form: Form) -> PooledAnswer:
        # An unknown value is left to the API server, which refuses it.
        if form.is_table and scope.request.parameter("includeObject") in ("", *INCLUDE_OBJECT):
            query = with_parameters(query, frozenset({"includeObject"}), {"includeObject": "Object"})
        target = path_of(scope.request) + (f"?{query}" if query else "")
        request = OutgoingRequest("GET", target, self._request_headers(scope, form.accept), None)
        return await self._upstream.send(request, as_proxy=scope.caller.as_proxy)

    def _request_headers(self, scope: ProxiedRequest, accept: str) -> list[tuple[str, str]]:
        return [*upstream_headers(scope.request, scope.caller, without=_OWN), ("Accept", accept)]

    def _table(self, scope: ProxiedRequest, view: ClientView) -> TableRewriter:
        info = scope.info
        resource = info.group_resource
        include = scope.request.parameter("includeObject")
        return TableRewriter(view, resource, include, lambda: self._services.columns.get(resource, info.version), self._services.clock)

    async def _table_list(self, scope: ProxiedRequest, view: ClientView, form: Form, answer: PooledAnswer, generation: int) -> Reply:
        headers = answer.headers
        body = await body_of(answer, scope.request.path, _MAX_TABLE)
        tree = parsed(body)
        if tree.get("kind") != "Table":
            # The resource has no Tables, and the client accepts objects: otherwise the API server would have refused the request.
            rewriter = ListRewriter(view, Form(JSON), collect=False)
            data = await rewriter.feed(body) + await rewriter.finish()
            self._services.continuity.record(scope.list_scope(), rewriter.version, generation, None)
            return Answer(body=data.removesuffix(b"\n"), content_type=JSON, headers=self._headers(headers, view))
        table = self._table(scope, view)
        document = await table.rewrite(tree)
        if limit := _limit(scope.request, view):
            await self._fill_table(scope, view, form, table, document, limit)
        await asyncio.sleep(0)
        version = str(document["metadata"].get("resourceVersion", ""))
        self._services.continuity.record(scope.list_scope(), version, generation, None)
        return self._answer(document, form, headers, view, 200)

    async def _filled(
        self, scope: ProxiedRequest, view: ClientView, form: Form, rewriter: ListRewriter, limit: int, answer: PooledAnswer
    ) -> AsyncIterator[bytes]:
        """Yield the parts of a page of the client, for which several pages of the API server may be needed."""

        async def probe(token: str, number: int) -> tuple[Sequence[int], str]:
            probed = ListRewriter(view, Form(JSON), collect=False, joins_pages=True)
            further = await self._page(scope, view, Form(JSON), token, number)
            async for _ in rewritten_list(chunks_of(further), probed):
                pass
            return probed.shown_at, probed.continue_token

        async for part in rewritten_list(chunks_of(answer), rewriter):
            yield part
        async for token, number in further_pages(limit, rewriter, probe):
            further = await self._page(scope, view, form, token, number)
            rewriter.next_page()
            async for part in rewritten_list(chunks_of(further), rewriter):
                yield part
        yield rewriter.close()

    async def _fill_table(
        self, scope: ProxiedRequest, view: ClientView, form: Form, table: TableRewriter, document: JSONObject, limit: int
    ) -> None:
        """Add rows to a page of the client, for which several pages of the API server may be needed."""
        progress = TablePages(document)

        async def page(token: str, number: int) -> JSONObject:
            answer = await self._page(scope, view, form, token, number)
            tree = parsed(await body_of(answer, scope.request.path, _MAX_TABLE))
            if tree.get("kind") != "Table":
                raise bad_gateway("the API server sent a further page of a Table in another form")
            return tree

        async def probe(token: str, number: int) -> tuple[Sequence[int], str]:
            tree = await page(token, number)
            positions = [at for at, row in enumerate(tree.get("rows") or (), 1) if await table.row(row) is not None]
            return positions, TablePages(tree).continue_token

        async for token, number in further_pages(limit, progress, probe):
            progress.add(await table.rewrite(await page(token, number)))
        progress.close()

    async def _page(self, scope: ProxiedRequest, view: ClientView, form: Form, token: str, number: int) -> PooledAnswer:
        """Return the API server's response for a further page of a list.

        Raises:
            ApiError: The API server refused, or sent no list.
        """
        query = page_query(view.query, token, number)
        answer = await self._send(scope, query, form)
        if answer.status != 200:
            await body_of(answer, scope.request.path, MAX_OBJECT)  # raises the API server's error, among them 410
        if answer.status != 200 or not is_json(answer.headers):
            answer.close()
            raise bad_gateway("the API server sent a further page of a list in another form, so that the rules cannot be applied")
        return answer

    async def _recorded(
        self, parts: AsyncIterator[bytes], rewriter: ListRewriter, scope: ProxiedRequest, generation: int, *, is_first: bool
    ) -> AsyncGenerator[bytes, None]:
        """Yield the parts of a list, and remember the list once it is complete."""
        async for part in parts:
            yield part
        keys = rewriter.keys if is_first and not rewriter.continue_token else None
        self._services.continuity.record(scope.list_scope(), rewriter.version, generation, keys)

    def _headers(self, received: Headers, view: ClientView, *, begun: bool = False) -> list[tuple[str, str]]:
        headers = headers_without_body(received)
        if self._services.explain:
            # The header of a stream is sent before its objects are known: it names all rules of the request.
            names = view.selection.rules if begun else tuple(view.touched)
            headers.append((RULES_HEADER, ", ".join(names)))
        return headers

    def _answer(self, tree: JSONObject, form: Form, received: Headers, view: ClientView, status: int) -> Answer:
        return _encoded(tree, form, self._headers(received, view), status)

    def _gone(self, scope: ProxiedRequest, form: Form, received: Headers, view: ClientView, *, written: bool) -> Reply:
        if not written:
            # With the headers of the API server, as the answer for a missing object has them.
            error = api_errors.not_found(scope.info.group_resource, scope.info.name)
            return Answer(404, object=status_object(error.status), headers=headers_without_body(received))
        tree: JSONObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return self._answer(tree, Form(form.media_type), received, view, 200)


def _limit(request: Request, view: ClientView) -> int:
    """Return the number of objects to which pages are filled, because some may be hidden; 0 for a list that is passed page by page."""
    if view.dry_run or not (view.selection.may_hide or view.selects):
        return 0
    return max(0, decimal(request.parameter("limit")) or 0)


def _encoded(tree: JSONObject, form: Form, headers: list[tuple[str, str]], status: int) -> Answer:
    if form.media_type == PROTOBUF:
        return Answer(status, body=protobuf_of(tree), content_type=PROTOBUF, headers=headers)
    return Answer(status, object=tree, content_type=form.media_type, headers=headers)


async def _or_aborted(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts of a list whose beginning is sent. A failure cuts the connection: clients must not take a part for the whole."""
    try:
        async for part in parts:
            yield part
    except (ApiError, TransportError) as error:
        raise Aborted(str(error)) from None


async def _events(opened: UpstreamWatch, rewriter: WatchRewriter, form: Form) -> AsyncIterator[bytes]:
    splitter = FrameSplitter()
    written: list[bytes] = []
    try:
        while chunk := await opened.chunk():
            for frame in splitter.feed(chunk):
                result = rewriter.event(frame)
                sent = result if result is None or isinstance(result, bytes) else await result
                if sent is not None:
                    written.append(sent)
            if written:
                yield b"".join(written)
                written.clear()
        if splitter.pending:
            raise Aborted("the API server's watch ended in the middle of an event")
    except ApiError as error:
        written.append(event_frame("ERROR", status_object(error.status), form))
        yield b"".join(written)
    except DecodeError as error:
        yield event_frame("ERROR", status_object(bad_gateway(str(error)).status), form)
    except TransportError as error:
        if not opened.expired:
            raise Aborted(str(error)) from None
        yield event_frame("ERROR", status_object(rules_changed().status), form)
    finally:
        opened.close()
