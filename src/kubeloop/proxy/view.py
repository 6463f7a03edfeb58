"""The view that the client of one request has of the API server's objects: its rules, and selectors that only the proxy can evaluate.

A selector of the client is evaluated on what the client sees. If a rule may change a selected label or field, the API server, which knows
only the original, cannot evaluate it: the result would tell the client the hidden value.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote_plus

from kubeloop.endpoints import api_errors
from kubeloop.meta.errors import ApiError
from kubeloop.meta.selectors import FieldSelector, Selector, parse_field_selector, parse_label_selector
from kubeloop.proxy.partial_objects import may_name_field, partial_decoder
from kubeloop.proxy.rules import Examination, HeadMetadata, Rewritten, RuleFailed, RuleSelection
from kubeloop.proxy.selections import SelectedRules
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.proxy.rules")

#: Fields that no rule can change, so that the API server can always select by them.
_FIXED = frozenset({"metadata.name", "metadata.namespace"})


#: Names in field selectors that are not the paths of their fields, and the fields whose first value they select by.
#: Source: k8s.io/kubernetes pkg/apis/core/v1/conversion.go, pkg/registry/core/event and pkg/registry/batch/job (strategy.go).
_SELECTABLE: Final = {
    "spec.host": ("spec.nodeName",),
    "source": ("source.component", "reportingComponent"),
    "reportingComponent": ("reportingComponent", "reportingController"),
    "status.successful": ("status.succeeded",),
}


class MalformedSelector(ApiError):
    """A selector that the proxy has to evaluate cannot be parsed (400)."""


class RuleCounters:
    """Counts the objects that each rule hid or changed, and the objects for which it failed."""

    def __init__(self) -> None:
        self.hidden: Counter[str] = Counter()
        self.changed: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def count(self, result: Rewritten) -> None:
        counts = self.hidden if result.object is None else self.changed
        for rule in result.rules:  # Counter.update takes several times as long
            counts[rule] += 1


class ClientView:
    """Decides what a client sees of each object.

    Args:
        selection: The rules of the request.
        request: The request, for the selectors in its query.
        counters: Counts what the rules do.
        selects: The request selects objects by its query. A kube-apiserver ignores the selectors of a get.
        dry_run: Log what would change, and show every object unchanged.

    Raises:
        MalformedSelector: A selector cannot be parsed.

    Attributes:
        decoder: Decodes what the rules need of an object, for ``see``. None: they need all of it.
        needs_objects: No object can be decided by its metadata.
        query: The query for the API server, without selectors that the proxy evaluates.
        touched: The rules that touched an object so far, in the order of their first effect.
    """

    def __init__(
        self, selection: SelectedRules, request: Request, counters: RuleCounters, *, selects: bool = True, dry_run: bool = False
    ) -> None:
        self.selection = selection
        self.dry_run = dry_run
        self.touched: dict[str, None] = {}
        self._counters = counters
        self._labels: Selector | None = None
        self._fields: FieldSelector | None = None
        #: Rules that hide an object during its whole life, without selectors, need no memory of what the client has seen.
        self.query = self._split_selectors(request) if selects and not dry_run else request.query_string
        self.selects = (self._labels, self._fields) != (None, None)
        self.is_constant = dry_run or (selection.immutable_visibility and not self.selects)
        paths = selection.paths if isinstance(selection, RuleSelection) and not self.selects and not dry_run else None
        is_partial = paths is not None and all(may_name_field(path[0]) for path in paths)
        self.decoder = partial_decoder(frozenset(paths)) if paths is not None and is_partial else None
        self.needs_objects = isinstance(selection, RuleSelection) and selection.needs_objects
        if not dry_run and not self.selects:
            self.examine = selection.examine  # type: ignore[method-assign]

    def examine(self, head: HeadMetadata) -> Examination:
        """Decide by an object's metadata, if they suffice."""
        found = self.selection.examine(head)
        if self.dry_run and found is Examination.HIDDEN:
            return Examination.NEEDS_OBJECT  # the rule's name is logged
        if self.selects and found is Examination.UNTOUCHED:
            return Examination.NEEDS_OBJECT
        return found

    @property
    def synchronous(self) -> bool:
        return self.selection.synchronous

    def see(self, tree: JSONObject) -> Rewritten:
        """Return what the client sees of an object. Only for a ``synchronous`` view; the object is not changed.

        Raises:
            ApiError: 500: a rule failed. The message names the rule, and nothing of the object.
        """
        try:
            return self._seen(tree, self.selection.rewrite(tree))
        except RuleFailed as error:
            raise self._failed(tree, error) from None

    async def see_async(self, tree: JSONObject) -> Rewritten:
        """Return what the client sees of an object, as ``see``, for any view."""
        if self.selection.synchronous:
            return self.see(tree)
        try:
            return self._seen(tree, await self.selection.rewrite_async(tree))
        except RuleFailed as error:
            raise self._failed(tree, error) from None

    def count_hidden(self, head: HeadMetadata) -> None:
        """Count an object that ``examine`` hid."""
        rules = self.selection.rules
        rule = rules[0] if len(rules) == 1 else self.selection.hidden_by(head)
        self._counters.hidden[rule] += 1
        self.touched[rule] = None

    def _seen(self, tree: JSONObject, result: Rewritten) -> Rewritten:
        if result.rules:
            if self.dry_run:
                done = "hide" if result.object is None else "change"
                _LOG.info("dry run: %s would %s %s", " and ".join(result.rules), done, description_of(tree))
                return Rewritten(tree, result.rules, changed=False)
            self._counters.count(result)
            for rule in result.rules:
                self.touched[rule] = None
        if result.object is None or not self.selects:
            return result
        if not self._selects(result.object):
            return Rewritten(None, result.rules, changed=False)
        return result

    def _selects(self, tree: JSONObject) -> bool:
        metadata = tree.get("metadata") or {}
        if self._labels is not None and not self._labels.matches(metadata.get("labels") or {}):
            return False
        return self._fields is None or self._fields.matches(
            {term.field: _field(tree, term.field, term.value) for term in self._fields.terms}
        )

    def _failed(self, tree: JSONObject, error: RuleFailed) -> ApiError:
        self._counters.failed[error.rule] += 1
        _LOG.error("rule %s failed for %s: %s", error.rule, description_of(tree), error.reason)
        return api_errors.internal_error(f"rule {error.rule} of the proxy failed; see the proxy's log")

    def _may_change(self, field: str) -> bool:
        return any(self.selection.may_change_path(*path.split(".")) for path in _SELECTABLE.get(field, (field,)))

    def _split_selectors(self, request: Request) -> str:
        """Return the query without selectors that the proxy evaluates, and parse these."""
        text = request.parameter("labelSelector")
        without = set()
        if text and self.selection.may_change_path("metadata", "labels"):
            self._labels = _parsed(parse_label_selector, text)
            without.add("labelSelector")
        text = request.parameter("fieldSelector")
        kept: FieldSelector | None = None
        if text:
            terms = _parsed(parse_field_selector, text).terms
            own = tuple(term for term in terms if term.field not in _FIXED and self._may_change(term.field))
            if own:
                self._fields = FieldSelector(own)
                kept = FieldSelector(tuple(term for term in terms if term not in own))
                without.add("fieldSelector")
        if not without:
            return request.query_string
        pairs = [pair for pair in request.query_string.split("&") if unquote_plus(pair.partition("=")[0]) not in without]
        if kept is not None and not kept.everything:
            pairs.append("fieldSelector=" + quote(str(kept), safe=""))
        return "&".join(pairs)


def description_of(tree: JSONObject) -> str:
    """Return kind, namespace and name of an object, for logs."""
    metadata = tree.get("metadata") or {}
    name = f"{metadata['namespace']}/{metadata.get('name', '')}" if metadata.get("namespace") else str(metadata.get("name", ""))
    return f"{tree.get('kind') or 'object'} {name}"


def _parsed(parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise MalformedSelector(api_errors.bad_request(str(error)).status) from None


def _field(tree: JSONObject, field: str, expected: str) -> str:
    """Return the value of a field as field selectors compare it: a missing boolean is false, any other missing field is empty."""
    values = (_value(tree, path, expected) for path in _SELECTABLE.get(field, (field,)))
    return next((value for value in values if value), "")


def _value(tree: JSONObject, path: str, expected: str) -> str:
    value: Any = tree
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if expected in ("true", "false") else ""
    return str(value)
