"""``kubeloop server --data`` and its commands, as a person meets them: what outlives a server, and what each says when it cannot."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kubeloop.config import load_config
from kubeloop.testing import LocalCluster

pytestmark = pytest.mark.embedded


def run(*args: str | Path) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "kubeloop", "server", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def ask(kubeconfig: Path, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    config = load_config(kubeconfig)
    certificate, key = config.credentials.client_certificate, config.credentials.client_key
    assert certificate is not None
    assert key is not None
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{config.server}{path}", data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, context=config.ssl_context((certificate.read(), key.read()))) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            text = refused.read()
        # Before a kind is served, its paths lead nowhere, which the answer says in plain text.
        return refused.code, json.loads(text) if refused.headers.get_content_type() == "application/json" else text


CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def create(kubeconfig: Path, name: str) -> int:
    status, made = ask(kubeconfig, "POST", CONFIGMAPS, {"metadata": {"name": name}})
    assert status == 201, made
    return int(made["metadata"]["resourceVersion"])


def names(kubeconfig: Path) -> list[str]:
    return [one["metadata"]["name"] for one in ask(kubeconfig, "GET", CONFIGMAPS)[1]["items"]]


def identities(kubeconfig: Path) -> list[Any]:
    """Of what the server itself makes when it starts."""
    paths = ("/api/v1/namespaces", "/api/v1/services", "/api/v1/endpoints", "/apis/discovery.k8s.io/v1/endpointslices")
    return [one["metadata"]["uid"] for path in paths for one in ask(kubeconfig, "GET", path)[1]["items"]]


def test_objects_versions_identities_and_kubeconfigs_of_one_run_hold_for_the_next(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalCluster(controllers=False, data=data) as first:
        version, before = create(first.kubeconfig, "a"), identities(first.kubeconfig)
    with LocalCluster(controllers=False, data=data) as second:
        assert names(second.kubeconfig) == ["a"]
        assert create(second.kubeconfig, "b") > version
        assert identities(second.kubeconfig) == before


def test_custom_resources_outlive_the_server(tmp_path: Path) -> None:
    group = "stored.example.com"
    definition = {
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }
    with LocalCluster(controllers=False, data=tmp_path / "data") as first:
        assert ask(first.kubeconfig, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)[0] == 201
        deadline = time.monotonic() + 20
        while ask(first.kubeconfig, "GET", f"/apis/{group}/v1/things")[0] != 200:
            assert time.monotonic() < deadline, "the kind is served a moment after its definition was made"
        thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "one"}}
        assert ask(first.kubeconfig, "POST", f"/apis/{group}/v1/things", thing)[0] == 201
    with LocalCluster(controllers=False, data=tmp_path / "data") as second:
        assert ask(second.kubeconfig, "GET", f"/apis/{group}/v1/things/one")[0] == 200


def test_a_snapshot_is_saved_beside_the_server_and_restored_for_another(tmp_path: Path) -> None:
    data, file, other = tmp_path / "data", tmp_path / "snapshot", tmp_path / "other"
    with LocalCluster(controllers=False, data=data) as cluster:
        version = create(cluster.kubeconfig, "a")
        assert run("snapshot", "save", file, "--data", data) == (0, f"saved revision {version} of {data} in {file}\n", "")
        create(cluster.kubeconfig, "b")
    message = f"restored {file} in {other} at revision {version + 100}\n"
    assert run("snapshot", "restore", file, "--data", other, "--bump-revision", "100") == (0, message, "")
    with LocalCluster(controllers=False, data=other) as cluster:
        assert names(cluster.kubeconfig) == ["a"]
        status, refused = ask(cluster.kubeconfig, "GET", f"{CONFIGMAPS}?resourceVersion={version}&resourceVersionMatch=Exact")
        assert (status, refused["reason"]) == (410, "Expired")
    status, out, err = run("snapshot", "restore", file, "--data", other)
    assert (status, out) == (1, "")
    assert err == f"Error: {other} holds a store already, which is left as it is; name an empty folder\n"


def test_a_second_server_on_the_same_folder_does_not_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalCluster(controllers=False, data=data) as cluster:
        status, out, err = run("--no-controllers", "--data", data)
        assert (status, out) == (1, "")
        assert f"Error: {data} is in use by another server (process {cluster.pid}); end that one, or name another folder" in err


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("my notes" * 100)
    status, out, err = run("--no-controllers", "--data", tmp_path)
    assert (status, out) == (1, "")
    assert f"Error: {tmp_path / 'store.db'} is damaged: file is not a database; restore a snapshot into another folder, or move" in err


def test_compact_forgets_history_on_demand(local_cluster: LocalCluster) -> None:
    kubeconfig = local_cluster.kubeconfig
    first = create(kubeconfig, "compact-a")
    second = create(kubeconfig, "compact-b")
    assert run("compact", str(second), "--kubeconfig", kubeconfig) == (0, f"compacted up to revision {second}\n", "")
    status, refused = ask(kubeconfig, "GET", f"{CONFIGMAPS}?resourceVersion={first}&resourceVersionMatch=Exact")
    assert (status, refused["reason"]) == (410, "Expired")
    assert ask(kubeconfig, "GET", f"{CONFIGMAPS}?resourceVersion={second}&resourceVersionMatch=Exact")[0] == 200
    status, _, err = run("compact", "99999999", "--kubeconfig", kubeconfig)
    assert status == 1
    assert err.startswith("Error: revision 99999999 is in the future; the current one is ")


def test_compact_says_where_nothing_listens_and_options_of_the_server_do_not_go_with_it(tmp_path: Path) -> None:
    status, _, err = run("--port", "7", "compact", "4")
    assert status == 2
    assert "--port belongs to the server; options of compact come after its name" in err
    status, _, err = run("compact", "4", "--kubeconfig", tmp_path / "none")
    assert (status, str(tmp_path / "none") in err) == (1, True)
