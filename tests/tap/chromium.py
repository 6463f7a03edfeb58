"""Drives a real headless Chromium by its DevTools protocol over a WebSocket on loopback."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-port=0",
)


def chromium_binary() -> str:
    """The browser of this machine, or an empty text."""
    return next((found for name in _NAMES if (found := shutil.which(name))), "")


class Page:
    """A tab. ``problems`` has the errors of its console, of its scripts and of its Content-Security-Policy; ``requests`` what it loads."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self._session = ""
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while (reply := self._receive()).get("id") != self._number:
            pass
        assert "error" not in reply, f"{method}: {reply['error']}"
        result: dict[str, Any] = reply["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(timeout=30))
        method, details = message.get("method", ""), message.get("params", {})
        if method:
            self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(details["exceptionDetails"].get("exception", {}).get("description", details)))
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.problems.append(str([one.get("value") for one in details["args"]]))
        elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.problems.append(str(details["entry"]["text"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(str(details["request"]["url"]))
        return message

    def open(self, file: Path, *, width: int = 1400, height: int = 900, scheme: str = "light") -> None:
        """Load a file and return when it has run."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._events.clear()
        self.call("Page.navigate", url=file.absolute().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._receive()

    def run(self, script: str) -> Any:
        """The value of an expression, whose promise is awaited."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def frame(self) -> None:
        """Return after the next two frames, so that the page has reacted."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))")

    def press(self, key: str, text: str = "") -> None:
        """Press a key, such as ``Enter`` or ``j``."""
        text = text or (key if len(key) == 1 else "\r" if key == "Enter" else "")
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "End": 35, "Home": 36}
        common = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        self.frame()

    def type(self, text: str) -> None:
        """Type a text into the focused element."""
        self.call("Input.insertText", text=text)
        self.run("new Promise(done => setTimeout(done, 150))")  # the page waits for the end of typing
        self.frame()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag with the left button."""
        for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
        self.frame()

    def screenshot(self, file: Path) -> None:
        """Write a PNG of the window."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A page of a new browser, which ends with the block. ``folder`` holds its profile."""
    command = [chromium_binary(), *_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        assert process.stderr is not None
        address = ""
        for line in process.stderr:
            if line.startswith("DevTools listening on "):
                address = line.removeprefix("DevTools listening on ").strip()
                break
        assert address, "Chromium did not start"
        with connect(address, max_size=None, compression=None, proxy=None) as socket:
            page = Page(socket)
            yield page
            page._session = ""
            page.call("Browser.close")
        process.wait(timeout=20)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
