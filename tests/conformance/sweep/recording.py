"""Recordings of the sweep: each holds its own script, so that a replay sends what was sent to the real server."""

from __future__ import annotations

import json
from pathlib import Path

from kubeloop.schema import ResourceInfo
from kubeloop.types import JSONObject
from tests.conformance import recordings
from tests.conformance.scenario import Run
from tests.conformance.sweep.script import Script, title
from tests.conformance.trees import put
from tests.conformance.wire import Server


def replay(server: Server, recording: JSONObject, timeout: float = 5) -> tuple[JSONObject, list[str]]:
    """What a server answers to the script of a recording, and what the script did not expect."""
    run = Run(server, recording["script"], recording["scenario"], timeout)
    return run.run(), run.surprises


def record(server: Server, resource: ResourceInfo) -> Path:
    """Ask a real server, which must be fresh."""
    script, name = Script(resource), title(resource)
    scenario: JSONObject = {"namespace": name, "serviceaccount": True, "dense": True, "vars": {"csr": script.variables["csr"]}}
    maximal = largest(server, script, scenario) if script.is_stored else None
    scenario["steps"] = script.steps(maximal)
    if "rvOrder" in script.hint:
        scenario["rvOrder"] = script.hint["rvOrder"]
    actual, surprises = replay(server, {"script": scenario, "scenario": name}, timeout=15)
    for surprise in surprises:
        print(surprise)
    for step in actual["steps"]:
        step["request"] = {"method": step["request"]["method"], "path": step["request"]["path"]}
    actual["script"] = scenario
    file = recordings.path_of("sweep", name)
    recordings.save(file, actual)
    return file


def largest(server: Server, script: Script, scenario: JSONObject) -> JSONObject:
    """The object with as many fields as the server accepts together: each is added if a dry run still succeeds."""
    run = Run(server, scenario | {"steps": []}, scenario["namespace"])
    run.run()
    found = script.body(labels={"app": "a"}, annotations={"example.com/a": "b"})
    left_out = script.hint.get("alone", [])
    for path in script.nodes:
        for everything in (True, False):
            tried = json.loads(json.dumps(found))
            try:
                script.set(tried, path, script.good(path, everything=everything))
            except (KeyError, IndexError, TypeError, AttributeError):
                continue
            if path in left_out:
                continue
            before = len(run.steps)
            run.step({"post": f"{script.collection}?dryRun=All", "body": tried})
            if run.steps[before]["status"] == 201:
                found = tried
                break
    put(found, "metadata.name", script.name)
    return found
