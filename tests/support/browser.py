"""A Chromium that a test drives: Debian's, by the WebDriver protocol of its chromedriver."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import until

MISSING = "needs Chromium and its driver: apt-get install chromium chromium-driver"
#: Only against hangs, seconds.
PATIENCE = 600.0
_STARTS = 3
#: WebDriver's code points of keys without a character.
_KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Space": " ",
    "ArrowDown": "\ue015",
    "ArrowUp": "\ue013",
}
_ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars"),
)


def there() -> bool:
    """Whether this machine has Chromium and its driver."""
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """One window."""

    def __init__(self, address: str) -> None:
        self._address = address

    def open(self, url: str) -> None:
        self._ask("url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript; returns its result."""
        return self._ask("execute/sync", script=script, args=list(arguments))

    def wait_for(self, script: str) -> Any:
        """Wait until an expression of JavaScript is true; returns its value."""
        values: list[Any] = []

        def holds() -> Any:
            values.append(self.run(f"return {script}"))
            return values[-1]

        try:
            until(holds, seconds=PATIENCE)
        except AssertionError as error:
            text = self.text("body")[:4000]
            raise AssertionError(f"never true: {script}; {text}") from error
        return values[-1]

    def text(self, selector: str) -> str:
        """Returns the visible text of an element."""
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def type(self, selector: str, text: str) -> None:
        """Empty a field and type a text into it, key by key."""
        element = self._ask("element", using="css selector", value=selector)
        (number,) = element.values()
        self._ask(f"element/{number}/clear")
        self._ask(f"element/{number}/value", text=text)

    def click(self, selector: str) -> None:
        element = self._ask("element", using="css selector", value=selector)
        (number,) = element.values()
        self._ask(f"element/{number}/click")

    def press(self, *keys: str) -> None:
        """Presses keys one after the other: characters, or names such as Tab, Enter, ArrowDown."""
        steps = []
        for key in keys:
            value = _KEYS.get(key, key)
            steps += [{"type": kind, "value": value} for kind in ("keyDown", "keyUp")]
        self._ask("actions", actions=[{"type": "key", "id": "keys", "actions": steps}])

    def tap(self, x: float, y: float) -> None:
        """Touch a point of the page briefly with a finger."""
        self._finger(x, y, {"type": "pause", "duration": 50})

    def swipe(self, x: float, y: float, up: float) -> None:
        """Move a finger upwards, which scrolls the page down."""
        steps = 12
        moves = (round(y - up * step / steps) for step in range(1, steps + 1))
        self._finger(
            x, y, *({"type": "pointerMove", "x": round(x), "y": to, "duration": 30} for to in moves)
        )

    def _finger(self, x: float, y: float, *meanwhile: dict[str, Any]) -> None:
        steps = [
            {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0},
            {"type": "pointerDown", "button": 0},
            *meanwhile,
            {"type": "pointerUp", "button": 0},
        ]
        finger = {"type": "pointer", "id": "finger", "parameters": {"pointerType": "touch"}}
        self._ask("actions", actions=[{**finger, "actions": steps}])

    def telephone(self, width: int, height: int) -> None:
        """Emulate a telephone: a small page, and fingers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
        self._ask("goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=metrics)
        self.fingers(True)

    def fingers(self, enabled: bool) -> None:
        """Emulate a touch screen, or none."""
        touch = {"enabled": True, "maxTouchPoints": 2} if enabled else {"enabled": False}
        self._ask("goog/cdp/execute", cmd="Emulation.setTouchEmulationEnabled", params=touch)

    def size(self, width: int, height: int) -> None:
        """Set the size of the page; a window could not be as narrow as a telephone."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=metrics)

    def downloads(self, folder: Path) -> None:
        """Choose the folder for files that the page saves."""
        parameters = {"behavior": "allow", "downloadPath": str(folder)}
        self._ask("goog/cdp/execute", cmd="Browser.setDownloadBehavior", params=parameters)

    def dark(self, dark: bool) -> None:
        """Emulate a system with dark colours, or with light ones."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        parameters = {"features": features}
        self._ask("goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params=parameters)

    def picture(self, path: Path) -> None:
        """Write a screenshot as a PNG file."""
        with urllib.request.urlopen(f"{self._address}/screenshot", timeout=PATIENCE) as answer:
            path.write_bytes(base64.b64decode(json.load(answer)["value"]))

    def _ask(self, path: str, **body: Any) -> Any:
        return _post(f"{self._address}/{path}", body)


def _driver(log: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a driver; returns it and its port.

    A driver ends at once if its port is in use over IPv6 only, so it is started again.
    """
    with log.open("w") as output:
        for _ in range(_STARTS):
            driver = subprocess.Popen(
                ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=output, text=True
            )
            assert driver.stdout is not None
            for line in driver.stdout:
                if "successfully on port" in line:
                    return driver, line.split()[-1].rstrip(".")
                output.write(line)
            output.write(f"ended with {driver.wait(PATIENCE)}\n")
            output.flush()
    raise AssertionError(f"chromedriver did not start: {log.read_text()}")


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Run a browser whose profile is in a folder."""
    driver, port = _driver(folder / "chromedriver.log")
    try:
        options = {"args": [*_ARGUMENTS, f"--user-data-dir={folder / 'profile'}"]}
        request = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        server = f"http://127.0.0.1:{port}/session"
        address = f"{server}/{_post(server, request)['sessionId']}"
        try:
            yield Browser(address)
        finally:
            end = urllib.request.Request(address, method="DELETE")
            urllib.request.urlopen(end, timeout=PATIENCE).close()
    finally:
        driver.terminate()
        driver.wait(PATIENCE)


def _post(url: str, body: Any) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)["value"]
