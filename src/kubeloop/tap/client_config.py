"""The kubeconfig and the environment that lead a command through the tap."""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import tempfile
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from kubeloop.config import ClusterConfig
from kubeloop.config.in_cluster import ACCOUNT, in_cluster_config, is_in_cluster
from kubeloop.config.kubeconfig.edit import write_private
from kubeloop.config.kubeconfig.merged import Kubeconfig, kubeconfig_files, read_kubeconfig
from kubeloop.config.load import load_config
from kubeloop.meta.errors import ConfigError
from kubeloop.types import JSONObject

_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy")
_NO_PROXY_VARIABLES = ("NO_PROXY", "no_proxy")


class TapMode(Enum):
    """How a command is led through the tap: another server, ``proxy-url``, or the variable HTTPS_PROXY."""

    SERVER = "server"
    PROXY_URL = "proxy-url"
    HTTPS_PROXY = "https-proxy"


def load_cluster(kubeconfig: Path | None, context: str | None) -> tuple[ClusterConfig, JSONObject]:
    """Return the configuration of the cluster, and a kubeconfig of its context only, with certificate files embedded.

    Raises:
        ConfigError: There is no usable kubeconfig.
    """
    config = load_config(kubeconfig, context)
    files = kubeconfig_files(kubeconfig)
    merged = read_kubeconfig(list(files.paths), must_exist=files.explicit)
    if not config.context and is_in_cluster():
        return in_cluster_config(), _pod_kubeconfig(config)
    return config, Kubeconfig(merged.documents).view(config.context, minify=True, flatten=True, raw=True)


def _pod_kubeconfig(config: ClusterConfig) -> JSONObject:
    """Return a kubeconfig of the pod's service account."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "pod", "cluster": {"server": config.server}}],
        "users": [{"name": "pod", "user": {"tokenFile": str(ACCOUNT / "token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod", "namespace": config.namespace}}],
        "current-context": "pod",
    }


def through_tap(kubeconfig: JSONObject, mode: TapMode, port: int, authority: bytes, *, trusted: bytes = b"") -> JSONObject:
    """Return the kubeconfig with a cluster that leads through the tap. Everything else stays, such as namespace and credentials.

    Args:
        kubeconfig: A kubeconfig with one cluster.
        mode: SERVER replaces the server's address; PROXY_URL keeps it; HTTPS_PROXY changes the trust only.
        port: The tap's port on 127.0.0.1.
        authority: The tap's certificate authority, PEM.
        trusted: Further authorities to trust, PEM.
    """
    cluster: JSONObject = dict(kubeconfig["clusters"][0]["cluster"])
    for name in ("certificate-authority", "insecure-skip-tls-verify", "proxy-url"):
        cluster.pop(name, None)
    cluster["certificate-authority-data"] = base64.b64encode(trusted.rstrip() + b"\n" + authority if trusted else authority).decode()
    if mode is TapMode.SERVER:
        cluster["server"] = f"https://127.0.0.1:{port}"
        cluster.pop("tls-server-name", None)
    elif mode is TapMode.PROXY_URL:
        cluster["proxy-url"] = f"http://127.0.0.1:{port}"
    return {**kubeconfig, "clusters": [{**kubeconfig["clusters"][0], "cluster": cluster}]}


class TemporaryKubeconfig:
    """A kubeconfig of mode 0600 in a folder that only this user can enter; ``remove`` deletes both.

    >>> file = TemporaryKubeconfig({"apiVersion": "v1", "kind": "Config"})
    >>> file.path.name
    'kubeconfig'
    >>> file.remove()
    """

    def __init__(self, content: JSONObject) -> None:
        """Write the file.

        Raises:
            ConfigError: No temporary file can be written.
        """
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="kubeloop-tap-")
        except OSError as error:
            raise ConfigError(f"no temporary kubeconfig can be written ({error.strerror}); set TMPDIR to a folder with space") from None
        self.path = Path(self._folder.name) / "kubeconfig"
        try:
            write_private(self.path, json.dumps(content, indent=2).encode())
        except BaseException:
            self._folder.cleanup()
            raise

    def remove(self) -> None:
        """Delete the file and its folder."""
        self._folder.cleanup()


def command_environment(mode: TapMode, port: int, kubeconfig: Path | None, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of the command.

    Args:
        mode: HTTPS_PROXY sets the variables of that name, and removes NO_PROXY.
        port: The tap's port.
        kubeconfig: The value of KUBECONFIG. None: unchanged.
        environment: The environment to start from. None: that of this process.
    """
    result = dict(os.environ if environment is None else environment)
    if kubeconfig is not None:
        result["KUBECONFIG"] = str(kubeconfig)
    if mode is TapMode.HTTPS_PROXY:
        result |= dict.fromkeys(_PROXY_VARIABLES, f"http://127.0.0.1:{port}")
        for name in _NO_PROXY_VARIABLES:
            result.pop(name, None)
    return result


def is_loopback(server: str) -> bool:
    """Return whether Go's and kubeloop's clients ignore HTTPS_PROXY for this server (golang.org/x/net/http/httpproxy, useProxy)."""
    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
