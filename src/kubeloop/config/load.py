"""Loads the configuration of a cluster: an explicit file, KUBECONFIG, ~/.kube/config, or the pod's own cluster."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

from kubeloop.config.cluster import DEFAULT, ClusterConfig, Provenance, SettingOrigin, check_proxy, check_server
from kubeloop.config.credentials import PluginPolicy
from kubeloop.config.in_cluster import in_cluster_config, is_in_cluster, pod_namespace
from kubeloop.config.kubeconfig.entries import Cluster, Context, KubeconfigUser
from kubeloop.config.kubeconfig.merged import EntryInFile, Kubeconfig, KubeconfigFiles, kubeconfig_files, read_kubeconfig
from kubeloop.config.overrides import Overrides
from kubeloop.config.user import credentials_of, pem_of
from kubeloop.meta.errors import ConfigError

# Resolves a merged kubeconfig, a context name and overrides to one ``ClusterConfig``.
#
# Source: client-go tools/clientcmd/client_config.go and validation.go.


_LOG = logging.getLogger("kubeloop.config")

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def resolve(
    config: Kubeconfig,
    context: str | None = None,
    overrides: Overrides | None = None,
    *,
    namespace: Callable[[], tuple[str, SettingOrigin] | None] = lambda: None,
    policy: PluginPolicy | None = None,
    files_from: str = "argument",
) -> ClusterConfig:
    """Return the configuration of the cluster and user of ``context``, or of ``current-context``, with ``overrides`` applied.

    Args:
        config: The merged kubeconfig.
        context: Name of a context. None: the current context.
        overrides: Settings that take precedence.
        namespace: Called if neither the context nor an override names a namespace.
        policy: The credential plugins that may run. None: all.
        files_from: Where the files were named, for explanations.

    Raises:
        ConfigError: the context, or an entry it names, does not exist; or the entries cannot be used. The text names file, context and key.
    """
    given = overrides or Overrides()
    name, chosen, choice = _context(config, context, given)
    entry, overridden = given.on_context(chosen.entry)
    at = EntryLocation(chosen.file, f'context "{name}"', overridden) if name else EntryLocation(None, "", overridden)
    cluster, cluster_at = _cluster(config, entry, at, given, name)
    user, user_at = _user(config, entry, at, given, name)
    if not cluster.server:
        raise ConfigError(f"{cluster_at('server')} is not set; write for example https://127.0.0.1:6443")
    origins: dict[str, SettingOrigin] = {"context": choice} if name else {}
    origins |= {field: at.origin(field) for field in ("cluster", "user") if getattr(entry, field)}
    unused: list[str] = []
    for field in ("server", "tls_server_name", "insecure_skip_tls_verify", "proxy_url", "disable_compression"):
        if getattr(cluster, field):
            origins[field] = cluster_at.origin(field)
    ca = pem_of(cluster, "certificate_authority", cluster_at, origins, unused)
    server = _server(cluster.server)
    check_server(server, cluster_at("server"))
    check_proxy(cluster.proxy_url, cluster_at("proxy_url"))
    credentials = credentials_of(user, user_at, origins, unused, cluster, policy)
    if server.lower().startswith("http:"):
        if user_names := credentials.methods:
            # client-go sends no credential to a server without TLS (client_config.go, ClientConfig).
            unused.append(f"{' and '.join(user_names)} of {user_at.entry or 'the overrides'}: the server is not https")
            _LOG.warning("%s: %s not sent, because server is not https", user_at, " and ".join(user_names))
        credentials = credentials.only_impersonation()
    wanted, origins["namespace"] = _namespace(entry, at, namespace)
    return ClusterConfig(
        name=entry.cluster or "cluster",
        server=server,
        namespace=wanted,
        ca=ca,
        insecure_skip_tls_verify=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        credentials=credentials,
        proxy_url=cluster.proxy_url,
        disable_compression=cluster.disable_compression,
        context=name,
        source=str(cluster_at),
        provenance=Provenance(
            files=tuple(f"{file.path}{'' if file.exists else ' (does not exist)'}" for file in config.documents),
            files_from=files_from,
            user=entry.user,
            origins=tuple(origins.items()),
            unused=tuple(unused),
        ),
    )


class EntryLocation:
    """The location of one entry: in a file, or in the overrides. ``str`` names the entry; a call names one of its keys."""

    def __init__(self, file: Path | None, entry: str, overridden: frozenset[str], context: str = "") -> None:
        """Create a location.

        Args:
            file: The kubeconfig. None: the entry is not in a file.
            entry: The entry's name in messages.
            overridden: Fields that the overrides set.
            context: The context that refers to the entry; empty: none.
        """
        self.file = file
        self.entry = entry
        self._overridden = overridden
        self._context = f' (context "{context}")' if context else ""

    def __str__(self) -> str:
        if self.file is None:
            return "overrides" if self._overridden else "configuration"
        return f"{self.file}: {self.entry}{self._context}"

    def __call__(self, field: str, key: str = "") -> str:
        return f"override {field}" if self.comes_from_override(field) else f"{self}: {key or field.replace('_', '-')}"

    def comes_from_override(self, field: str) -> bool:
        return self.file is None or field in self._overridden

    def origin(self, field: str, key: str = "") -> SettingOrigin:
        if self.comes_from_override(field):
            return SettingOrigin(kind="override", where=f"override {field}")
        return SettingOrigin(kind="file", where=str(self.file), entry=self.entry, key=key or field.replace("_", "-"))

    def path(self, field: str, value: str) -> Path:
        """Return a path; relative paths are relative to their kubeconfig, whatever the working directory."""
        if self.file is None or field in self._overridden:
            return Path(value)
        return self.file.absolute().parent / value


def _context(config: Kubeconfig, asked: str | None, overrides: Overrides) -> tuple[str, EntryInFile[Context], SettingOrigin]:
    name = asked or config.current_context
    contexts = config.contexts
    if not name:
        if overrides.server or overrides.cluster:
            return "", EntryInFile(Context(), Path()), DEFAULT
        raise ConfigError(f"{config.shown}: current-context is not set; set it, or choose one of: {_names(contexts)}")
    choice = SettingOrigin(kind="override", where="argument context")
    if not asked:
        choice = SettingOrigin(kind="file", where=str(config.current_context_file), key="current-context")
    if name not in contexts:
        where = f"{config.shown}: contexts" if asked else str(choice)
        raise ConfigError(f'{where}: there is no context "{name}"; known: {_names(contexts)}')
    return name, contexts[name], choice


def _cluster(config: Kubeconfig, entry: Context, at: EntryLocation, overrides: Overrides, context: str) -> tuple[Cluster, EntryLocation]:
    found: EntryInFile[Cluster] | None = None
    if entry.cluster:
        clusters = config.clusters
        if entry.cluster not in clusters:
            raise ConfigError(f'{at("cluster")}: there is no cluster "{entry.cluster}"; known: {_names(clusters)}')
        found = clusters[entry.cluster]
    elif not overrides.server:
        raise ConfigError(f"{at('cluster')} is not set; name one of: {_names(config.clusters)}")
    merged, overridden = overrides.on_cluster(found.entry if found else Cluster())
    return merged, EntryLocation(found.file if found else None, f'cluster "{entry.cluster}"', overridden, context)


def _user(
    config: Kubeconfig, entry: Context, at: EntryLocation, overrides: Overrides, context: str
) -> tuple[KubeconfigUser, EntryLocation]:
    found: EntryInFile[KubeconfigUser] | None = None
    if entry.user:
        users = config.users
        if entry.user not in users:
            raise ConfigError(f'{at("user")}: there is no user "{entry.user}"; known: {_names(users)}')
        found = users[entry.user]
    merged, overridden = overrides.on_user(found.entry if found else KubeconfigUser())
    return merged, EntryLocation(found.file if found else None, f'user "{entry.user}"', overridden, context)


def _namespace(entry: Context, at: EntryLocation, fallback: Callable[[], tuple[str, SettingOrigin] | None]) -> tuple[str, SettingOrigin]:
    if not entry.namespace:
        return fallback() or ("default", DEFAULT)
    if not _LABEL.fullmatch(entry.namespace):
        raise ConfigError(
            f'{at("namespace")}: "{entry.namespace}" is not a valid name of a namespace: small letters, digits and hyphens, at most 63'
        )
    return entry.namespace, at.origin("namespace")


def _server(url: str) -> str:
    """Remove the parts of a URL that an API server's address never has (client_config.go, ClientConfig)."""
    return url.partition("#")[0].partition("?")[0].rstrip("/")


def _names(entries: object) -> str:
    names = ", ".join(sorted(entries)) if isinstance(entries, dict) else ""
    return names or "none"


def load_config(
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    overrides: Overrides | None = None,
    plugin_policy: PluginPolicy | None = None,
) -> ClusterConfig:
    """Load the configuration by client-go's precedence: ``kubeconfig``, the list in ``KUBECONFIG``, ``~/.kube/config``, in-cluster.

    Missing files of the list are skipped; in-cluster is tried only if the files choose no context, and neither ``kubeconfig``,
    ``context`` nor a server is given. ``ClusterConfig.explain`` says where each setting came from.

    Args:
        kubeconfig: A file, which must exist. None: ``KUBECONFIG`` or the default file.
        context: Name of a context. None: the current context.
        overrides: Settings that take precedence over the files.
        plugin_policy: The credential plugins that may run. None: all.

    Returns:
        The cluster's configuration.

    Raises:
        ConfigError: No configuration was found, or it cannot be used; the message names file, field and the fix.
    """
    files = kubeconfig_files(kubeconfig)
    config = read_kubeconfig(list(files.paths), must_exist=files.explicit)
    given = overrides or Overrides()
    chosen = context or config.current_context or given.cluster
    if not files.explicit and not chosen:
        if is_in_cluster():
            return in_cluster_config(overrides=given)
        if not given.server and not (config.clusters or config.contexts or config.users):
            raise _nothing_found(files)
    return resolve(config, context, given, namespace=pod_namespace, policy=plugin_policy, files_from=files.origin)


def _nothing_found(files: KubeconfigFiles) -> ConfigError:
    looked = ", ".join(f"{file} ({'which sets nothing' if file.exists() else 'which does not exist'})" for file in files.paths)
    origin = "KUBECONFIG names" if files.origin == "KUBECONFIG" else "the default is"
    return ConfigError(
        f"no configuration found: {origin} {looked or 'no file'}, and this is not a pod with a service account; "
        "give a kubeconfig, or set KUBECONFIG"
    )
