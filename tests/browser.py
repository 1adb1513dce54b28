"""A headless Chromium, driven over its debugging pipe: no port, no library, no network."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    "--remote-debugging-pipe",
)


def chromium() -> str | None:
    """The path of a Chromium, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """One page. What it logged as an error and what it requested is kept."""

    def __init__(self, browser: "Browser") -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.errors: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        offline = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0, "offline": True}
        self._call("Network.emulateNetworkConditions", **offline)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self, **params)

    def heard(self, method: str, params: dict[str, Any]) -> None:
        """Keep an event that matters."""
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
            self.errors.append(json.dumps(params["args"]))
        if method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    @property
    def session(self) -> str:
        """The session's id."""
        return self._session

    def open(self, path: Path, fragment: str = "", *, width: int = 1400, height: int = 900) -> None:
        """Load a file and wait until it is there."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        # A page that differs in its fragment alone is not loaded again.
        self._call("Page.navigate", url="about:blank")
        self._browser.wait("Page.loadEventFired", self)
        self.errors.clear()
        self.requests.clear()
        self._call("Page.navigate", url=path.resolve().as_uri() + fragment)
        self._browser.wait("Page.loadEventFired", self)

    def run(self, script: str) -> Any:
        """The value of an expression, which has to be JSON."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Save what is seen, or the whole page, as PNG."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


class Browser:
    """The process and its pipe."""

    def __init__(self, profile: Path) -> None:
        program = chromium()
        assert program is not None
        here_in, there_out = os.pipe()
        there_in, here_out = os.pipe()
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        # The program speaks on 3 and 4, whatever the numbers are here.
        shell = f'exec "$@" 3<&{there_in} 4>&{there_out}'
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command], pass_fds=(there_in, there_out), **quiet
        )
        os.close(there_in)
        os.close(there_out)
        self._in, self._out = os.fdopen(here_in, "rb"), os.fdopen(here_out, "wb")
        self._number = 0
        self._heard: list[tuple[str | None, str]] = []
        self._tabs: dict[str, Tab] = {}

    def call(self, method: str, tab: Tab | None = None, **params: Any) -> dict[str, Any]:
        """Ask for something and wait for the answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if tab is not None:
            message["sessionId"] = tab.session
            self._tabs[tab.session] = tab
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        for answer in self._messages():
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
        raise AssertionError("the browser ended")

    def wait(self, method: str, tab: Tab) -> None:
        """Wait for an event of a tab, which may have come already."""
        wanted = (tab.session, method)
        messages = self._messages()
        while wanted not in self._heard:
            next(messages)
        self._heard.clear()

    def _messages(self) -> Iterator[dict[str, Any]]:
        data = bytearray()
        while byte := self._in.read(1):
            if byte != b"\0":
                data += byte
                continue
            message = json.loads(data)
            data.clear()
            if "method" in message:
                session = message.get("sessionId")
                self._heard.append((session, message["method"]))
                if session in self._tabs:
                    self._tabs[session].heard(message["method"], message["params"])
            yield message

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._out.write(b'{"id":0,"method":"Browser.close"}\0')
            self._out.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._in.close()
