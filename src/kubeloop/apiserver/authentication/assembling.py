"""Authentication put together: who is asked in which order, and what others are told of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from kubeloop.apiserver.authentication.authorities import ClientAuthorities
from kubeloop.apiserver.authentication.chain import Authenticator
from kubeloop.apiserver.authentication.options import AuthenticationOptions
from kubeloop.apiserver.authentication.service_accounts.accounts import SECRETS, BoundObjects
from kubeloop.apiserver.authentication.service_accounts.legacy import LAST_USED, LegacyTokens
from kubeloop.apiserver.authentication.service_accounts.settings import TokenSettings
from kubeloop.apiserver.authentication.service_accounts.verifying import AccountTokens
from kubeloop.apiserver.authentication.tokens import StaticTokens
from kubeloop.apiserver.authentication.users import User
from kubeloop.apiserver.bootstrap import SYSTEM
from kubeloop.apiserver.ownership import SERVER
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.writing import Call, Writer
from kubeloop.timing import Clock

JSONObject = dict[str, Any]


class Authentication:
    """Raises ConfigError for files that cannot be read. ``own``: the server's own authority, PEM."""

    def __init__(
        self,
        options: AuthenticationOptions,
        registry: Registry,
        writer: Writer,
        clock: Clock,
        own: bytes,
        tokens: Mapping[str, User],
    ) -> None:
        self.options = options
        self.accounts = options.accounts or TokenSettings()
        self.authorities = ClientAuthorities(own, options.client_ca, options.proxy_ca)
        self._registry = registry
        self._writer = writer
        objects = BoundObjects(writer.objects, registry)
        audiences = self.accounts.audiences
        known = (
            StaticTokens(tokens, audiences, options.token_file),
            AccountTokens(self.accounts, objects, clock, LegacyTokens(objects, self._note_use)),
        )
        self.authenticator = Authenticator(
            known, audiences, authorities=self.authorities, proxies=options.proxies, anonymous=options.anonymous
        )

    async def _note_use(self, namespace: str, name: str, uid: str, day: str) -> None:
        resource = self._registry.get(SECRETS)
        if resource is None:
            return

        async def labelled(old: JSONObject) -> JSONObject:
            secret = copy.deepcopy(old)
            if secret["metadata"]["uid"] == uid:
                secret["metadata"]["labels"] = {**(secret["metadata"].get("labels") or {}), LAST_USED: day}
            return secret

        context = RequestContext(SYSTEM.name, SYSTEM.groups, namespace)
        call = Call(resource, namespace, name, SYSTEM, context, manager=SERVER)
        await self._writer.update(call, labelled, retry=True)
