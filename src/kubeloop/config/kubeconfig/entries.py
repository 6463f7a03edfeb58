"""The typed model of a kubeconfig's entries. Writing changes only known fields: those of newer tools stay.

Source: k8s.io/client-go tools/clientcmd/api/v1/types.go. Printing any of these never shows a secret.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from kubeloop.types import JSONObject


class _Entry(msgspec.Struct, rename="kebab", kw_only=True):
    """The base class of entries. It ignores unknown fields, which stay in the file's tree."""


class Extension(_Entry):
    """Data of another tool in a kubeconfig.

    >>> Extension(name="example.com/tool", extension={"color": "blue"}).extension
    {'color': 'blue'}
    """

    name: str
    extension: Any = None

    def __repr__(self) -> str:
        return f"Extension({self.name!r})"


class Cluster(_Entry):
    """The address and TLS settings of a server.

    ``certificate_authority_data`` is PEM text in base64, and takes precedence over the file.

    >>> cluster = Cluster(server="https://127.0.0.1:6443", certificate_authority="ca.crt")
    """

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[Extension] = []

    def __repr__(self) -> str:
        # A proxy's URL may contain a password.
        return f"Cluster({self.server!r}, {_set_fields(self)} fields set)"


class ExecVariable(_Entry):
    """An additional environment variable of a credential plugin.

    >>> variable = ExecVariable(name="AWS_PROFILE", value="test")
    """

    name: str = ""
    value: str = ""

    def __repr__(self) -> str:
        return f"ExecVariable({self.name!r})"


class Exec(msgspec.Struct, rename="camel", kw_only=True):
    """A credential plugin. A bare ``command`` is searched in PATH; one with a separator is a path, relative to the file.

    >>> plugin = Exec(command="aws", args=["eks", "get-token"], api_version="client.authentication.k8s.io/v1")
    """

    command: str = ""
    args: list[str] = []
    env: list[ExecVariable] = []
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""

    def __repr__(self) -> str:
        return f"Exec({self.command!r}, {len(self.args)} arguments, {len(self.env)} variables)"


class KubeconfigUser(_Entry):
    """The credentials of a user: a token, a name and password, a certificate, or a plugin.

    >>> user = KubeconfigUser(token_file="/var/run/token")
    """

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: list[str] = msgspec.field(default_factory=list, name="as-groups")
    impersonate_extra: dict[str, list[str]] = msgspec.field(default_factory=dict, name="as-user-extra")
    username: str = ""
    password: str = ""
    auth_provider: dict[str, Any] = {}
    exec: Exec | None = None
    extensions: list[Extension] = []

    def __repr__(self) -> str:
        # Nearly every field is or may contain a secret; debuggers and test reports print local variables.
        return f"User({_set_fields(self)} fields set)"


class Context(_Entry):
    """A named combination of cluster, user and namespace.

    >>> context = Context(cluster="test", user="admin", namespace="shop")
    """

    cluster: str = ""
    user: str = ""
    namespace: str = ""
    extensions: list[Extension] = []


class NamedCluster(_Entry):
    """An entry of ``clusters`` in a kubeconfig.

    >>> NamedCluster(name="test", cluster=Cluster(server="https://127.0.0.1:6443")).name
    'test'
    """

    name: str
    cluster: Cluster = msgspec.field(default_factory=Cluster)


class NamedUser(_Entry):
    """An entry of ``users`` in a kubeconfig.

    >>> NamedUser(name="admin", user=KubeconfigUser(token_file="/var/run/token")).name
    'admin'
    """

    name: str
    user: KubeconfigUser = msgspec.field(default_factory=KubeconfigUser)


class NamedContext(_Entry):
    """An entry of ``contexts`` in a kubeconfig.

    >>> NamedContext(name="test", context=Context(cluster="test", user="admin")).name
    'test'
    """

    name: str
    context: Context = msgspec.field(default_factory=Context)


class KubeconfigDocument(_Entry):
    """The typed content of one kubeconfig file."""

    kind: str = "Config"
    api_version: str = msgspec.field(default="v1", name="apiVersion")
    clusters: list[NamedCluster] = []
    users: list[NamedUser] = []
    contexts: list[NamedContext] = []
    current_context: str = ""


E = TypeVar("E", bound=msgspec.Struct)


def overlaid(entry: E, over: E) -> tuple[E, frozenset[str]]:
    """Return ``entry`` with every field that ``over`` sets, and the names of these fields; maps are merged by key.

    Source: client-go tools/clientcmd/merge.go: an empty value sets nothing.
    """
    changes: dict[str, Any] = {}
    for field in entry.__struct_fields__:
        value = getattr(over, field)
        if value:
            changes[field] = {**getattr(entry, field), **value} if isinstance(value, dict) else value
    return msgspec.structs.replace(entry, **changes), frozenset(changes)


def write_entry(tree: JSONObject, entry: msgspec.Struct) -> None:
    """Update a tree to the fields of ``entry``. Unknown and unchanged fields stay untouched."""
    for field in msgspec.structs.fields(entry):
        name, value = field.encode_name, getattr(entry, field.name)
        if isinstance(value, msgspec.Struct):
            nested = tree.get(name)
            tree[name] = nested if isinstance(nested, dict) else {}
            write_entry(tree[name], value)
        elif not value:
            tree.pop(name, None)
        elif (plain := msgspec.to_builtins(value)) != tree.get(name):
            tree[name] = plain


def _set_fields(entry: msgspec.Struct) -> int:
    return len([name for name in entry.__struct_fields__ if getattr(entry, name)])
