"""The variable ``authorizer`` of expressions: what the server's own authorization would say. The same question is asked once.

Source: k8s.io/apiserver pkg/cel/library/authz.go, pkg/admission/plugin/authorizer/caching_authorizer.go.
"""

from __future__ import annotations

import msgspec

from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.authorization import Access, Authorizer
from kubeloop.apiserver.authorization.access import parsed_fields
from kubeloop.cel import values
from kubeloop.cel.values import AccessQuestion


class Deciding:
    """Answers the questions of expressions about one write: those about its user, and about service accounts."""

    def __init__(self, user: User, authorizer: Authorizer) -> None:
        self._user = user
        self._authorizer = authorizer
        self._known: dict[tuple[str, ...], values.Decision] = {}

    def variable(self) -> values.Authorizer:
        """A value of the variable. It refers to what asks, which must not refer to it: nothing of a write is left to the collector."""
        return values.Authorizer(self._decide)

    def _decide(self, question: AccessQuestion, verb: str) -> values.Decision:
        key = verb, question.by.service_account, *msgspec.structs.astuple(question)[1:]  # without who asks, who holds this table
        found = self._known.get(key)
        if found is None:
            decision = self._authorizer.authorize(self._access(question, verb))
            found = self._known[key] = values.Decision(decision.allowed, decision.reason)
        return found

    def _access(self, question: AccessQuestion, verb: str) -> Access:
        user, account = self._user, question.by.service_account
        if account:
            namespace = account.split(":")[2]
            user = User(account, ("system:serviceaccounts", f"system:serviceaccounts:{namespace}"))
        if question.path:
            return Access(user, verb, path=question.path, is_resource=False)
        where = question.group, "*", question.resource, question.subresource, question.namespace, question.name
        return Access(user, verb, *where, fields=parsed_fields(question.field_selector))
