"""The configuration of a program in a pod: its service account's token, CA and namespace.

Source: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/ and client-go rest.InClusterConfig.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kubeloop.config.cluster import DEFAULT, ClusterConfig, Provenance, SettingOrigin
from kubeloop.config.credentials import Credentials, ImpersonatedUser, Pem
from kubeloop.config.overrides import Overrides
from kubeloop.meta.errors import ConfigError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ADDRESS = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


def is_in_cluster(environ: Mapping[str, str] | None = None, account: Path | None = None) -> bool:
    """Return whether the program runs in a pod: the environment variables and the token file of a pod exist."""
    environ, account = os.environ if environ is None else environ, account or ACCOUNT
    return all(environ.get(name) for name in _ADDRESS) and (account / "token").is_file()


def pod_namespace(environ: Mapping[str, str] | None = None, account: Path | None = None) -> tuple[str, SettingOrigin] | None:
    """Return the namespace of this pod from ``POD_NAMESPACE`` or else from the service account's file, or None outside of a pod.

    Source: client-go tools/clientcmd/merged_client_builder.go: also applies to a kubeconfig whose context has no namespace.
    """
    return _namespace(environ, account) if is_in_cluster(environ, account) else None


def in_cluster_config(
    environ: Mapping[str, str] | None = None, account: Path | None = None, overrides: Overrides | None = None
) -> ClusterConfig:
    """Return the configuration of the cluster in which this pod runs.

    The configuration names the token file and does not contain its content, because the kubelet rotates the token.
    The namespace is that of ``overrides``, else ``POD_NAMESPACE``, else the service account's file, else ``default``. ``overrides`` may
    also set server, token or token file, certificate authority, and impersonation.

    Raises:
        ConfigError: This is not a pod, or the pod has no service account mounted.
    """
    environ, account, given = os.environ if environ is None else environ, account or ACCOUNT, overrides or Overrides()
    host, port = (environ.get(name, "") for name in _ADDRESS)
    if not host or not port:
        raise ConfigError(
            "not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set; outside a pod give a kubeconfig"
        )
    if not (account / "token").is_file():
        raise ConfigError(f"{account / 'token'}: no such file; set automountServiceAccountToken: true for this pod, or give a kubeconfig")
    origins = {"server": SettingOrigin(kind="environment", where=" and ".join(_ADDRESS))}
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    if given.server:
        server, origins["server"] = given.server, _override("server")
    namespace, origins["namespace"] = _namespace(environ, account) or ("default", DEFAULT)
    if given.namespace:
        namespace, origins["namespace"] = given.namespace, _override("namespace")
    return ClusterConfig(
        name="in-cluster",
        server=server,
        namespace=namespace,
        ca=_authority(given, account, origins),
        insecure_skip_tls_verify=given.insecure_skip_tls_verify,
        tls_server_name=given.tls_server_name,
        proxy_url=given.proxy_url,
        disable_compression=given.disable_compression,
        credentials=_credentials(given, account, origins),
        source="in-cluster configuration",
        provenance=Provenance(files_from="in-cluster", origins=tuple(origins.items())),
    )


def _namespace(environ: Mapping[str, str] | None, account: Path | None) -> tuple[str, SettingOrigin] | None:
    if namespace := (os.environ if environ is None else environ).get("POD_NAMESPACE", ""):
        return namespace, SettingOrigin(kind="environment", where="POD_NAMESPACE")
    file = (account or ACCOUNT) / "namespace"
    try:
        namespace = file.read_text().strip()
    except OSError:
        return None  # optional in upstream too
    return (namespace, SettingOrigin(kind="service account", where=str(file))) if namespace else None


def _authority(overrides: Overrides, account: Path, origins: dict[str, SettingOrigin]) -> Pem | None:
    if overrides.certificate_authority_data:
        origins["certificate_authority"] = _override("certificate_authority_data")
        return Pem(data=overrides.certificate_authority_data, field="override certificate_authority_data")
    if overrides.certificate_authority:
        origins["certificate_authority"] = _override("certificate_authority")
        return Pem(path=Path(overrides.certificate_authority).absolute(), field="override certificate_authority")
    if overrides.insecure_skip_tls_verify:
        origins["insecure_skip_tls_verify"] = _override("insecure_skip_tls_verify")
        return None
    authority = account / "ca.crt"
    if not authority.is_file():
        return None  # the system's authorities decide, as in client-go
    origins["certificate_authority"] = SettingOrigin(kind="service account", where=str(authority))
    return Pem(path=authority, field="service account CA")


def _credentials(overrides: Overrides, account: Path, origins: dict[str, SettingOrigin]) -> Credentials:
    impersonate = None
    if overrides.impersonate:
        origins["impersonate"] = _override("impersonate")
        extra = tuple((key, tuple(values)) for key, values in overrides.impersonate_extra.items())
        impersonate = ImpersonatedUser(
            user=overrides.impersonate, uid=overrides.impersonate_uid, groups=tuple(overrides.impersonate_groups), extra=extra
        )
    if overrides.token or overrides.token_file:
        origins |= {name: _override(name) for name in ("token", "token_file") if getattr(overrides, name)}
        file = Path(overrides.token_file).absolute() if overrides.token_file else None
        return Credentials(token=overrides.token, token_file=file, impersonate=impersonate, owner="overrides")
    token = account / "token"
    origins["token_file"] = SettingOrigin(kind="service account", where=str(token))
    return Credentials(token_file=token, impersonate=impersonate, owner="service account")


def _override(field: str) -> SettingOrigin:
    return SettingOrigin(kind="override", where=f"override {field}")
