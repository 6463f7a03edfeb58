"""``python -m examples.what_client_go_sends_tutorial.compare INFORMER``: what clients send for the same cache, as the table of the page.

INFORMER is the compiled Go program. Each client runs for some seconds behind ``kubeloop tap``, which records its requests. With ``--write``
the table replaces that of docs/tutorials/what-client-go-sends.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

SECONDS = "3"
PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "what-client-go-sends.md"
_PART = re.compile(r"(?<=<!-- made by compare\.py -->\n).*?(?=<!-- end -->)", re.DOTALL)


def table(informer: str) -> str:
    """Return what each client sends, as a table in Markdown."""
    clients = {
        "client-go": ([informer], {}),
        "client-go, no WatchList": ([informer], {"KUBE_FEATURE_WatchListClient": "false"}),
        "kubeloop": ([sys.executable, "-m", "examples.what_client_go_sends_tutorial.informer"], {}),
        "kubectl get pods --watch": ([str(Path(sys.executable).with_name("kubectl")), "get", "pods", "--watch"], {}),
    }
    # kubectl keeps its discovery for some hours: a new home makes it ask.
    lines = ["| client | request | accepts | parameters |", "|---|---|---|---|"]
    for name, (command, settings) in clients.items():
        entries = recorded(command, settings)
        lines += [f"| {'' if number else name} | {row(entry)} |" for number, entry in enumerate(entries)]
    return "\n".join(lines) + "\n"


def table_of_page() -> str:
    """Return the table of the page."""
    found = _PART.search(PAGE.read_text())
    assert found is not None, "the page has no table of this program"
    return found[0]


def recorded(command: list[str], settings: dict[str, str]) -> list[dict[str, Any]]:
    """Return the requests of a client in the form of HAR."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "run.har")
        assigned = [f"{name}={value}" for name, value in settings.items()]
        words = ["env", *assigned, "timeout", "--signal=INT", SECONDS, *command]
        tap = [sys.executable, "-m", "kubeloop", "tap", "--quiet", "--record", str(file), "--", *words]
        subprocess.run(tap, check=False, stdout=subprocess.DEVNULL)
        entries: list[dict[str, Any]] = json.loads(file.read_text())["log"]["entries"]
        return entries


def row(entry: dict[str, Any]) -> str:
    """Return request, accepted form and parameters of a HAR entry."""
    url = urlsplit(entry["request"]["url"])
    accept = next(header["value"] for header in entry["request"]["headers"] if header["name"].lower() == "accept")
    accepted = "Table" if "as=Table" in accept else accept.partition(",")[0].partition(";")[0].rpartition("/")[2].rpartition(".")[2]
    parameters = sorted(f"`{name}={value}`" for name, value in parse_qsl(url.query))
    return f"{entry['request']['method']} {url.path} | {accepted} | {' '.join(parameters)}"


if __name__ == "__main__":
    made = table(sys.argv[1])
    if "--write" in sys.argv:
        PAGE.write_text(_PART.sub(lambda _: made, PAGE.read_text(), count=1))
    print(made, end="")
