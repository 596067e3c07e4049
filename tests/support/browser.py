"""A Chromium that a test drives: Debian's, by the WebDriver protocol of its chromedriver."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MISSING = "needs Chromium and its driver: apt-get install chromium chromium-driver"
#: Under heavy load a page takes long to be drawn, seconds.
PATIENCE = 120.0
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
    """Whether this machine has one."""
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """One window."""

    def __init__(self, address: str) -> None:
        self._address = address

    def open(self, url: str) -> None:
        self._ask("url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """Returns what JavaScript returns."""
        return self._ask("execute/sync", script=script, args=list(arguments))

    def wait_for(self, script: str) -> Any:
        """Returns what JavaScript returns, once that is true."""
        ends = time.monotonic() + PATIENCE
        while not (found := self.run(f"return {script}")):
            assert time.monotonic() < ends, f"never true: {script}; {self.text('body')[:4000]}"
            time.sleep(0.1)
        return found

    def text(self, selector: str) -> str:
        """What a reader sees of an element."""
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def type(self, selector: str, text: str) -> None:
        """Writes into a field that is emptied before, key by key."""
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
        """Touches a place of the page with a finger, shortly."""
        self._finger(x, y, {"type": "pause", "duration": 50})

    def swipe(self, x: float, y: float, up: float) -> None:
        """Moves a finger upwards, as who scrolls down does."""
        steps = 12
        moves = (round(y - up * step / steps) for step in range(1, steps + 1))
        self._finger(
            x, y, *({"type": "pointerMove", "x": round(x), "y": at, "duration": 30} for at in moves)
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
        """As on a telephone: a small page, and fingers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
        self._ask("goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=metrics)
        self.fingers(True)

    def fingers(self, there: bool) -> None:
        """With a screen that feels them, or without."""
        touch = {"enabled": there, "maxTouchPoints": 2} if there else {"enabled": False}
        self._ask("goog/cdp/execute", cmd="Emulation.setTouchEmulationEnabled", params=touch)

    def size(self, width: int, height: int) -> None:
        """Of the page; a window could not be as narrow as a telephone."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=metrics)

    def downloads(self, folder: Path) -> None:
        """Has files that the page saves written there."""
        parameters = {"behavior": "allow", "downloadPath": str(folder)}
        self._ask("goog/cdp/execute", cmd="Browser.setDownloadBehavior", params=parameters)

    def dark(self, dark: bool) -> None:
        """As with a system whose colours are dark, or light."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        parameters = {"features": features}
        self._ask("goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params=parameters)

    def picture(self, path: Path) -> None:
        """Writes what is to be seen as a PNG."""
        with urllib.request.urlopen(f"{self._address}/screenshot", timeout=PATIENCE) as answer:
            path.write_bytes(base64.b64decode(json.load(answer)["value"]))

    def _ask(self, what: str, **body: Any) -> Any:
        return _post(f"{self._address}/{what}", body)


def _driver(log: Path) -> tuple[subprocess.Popen[str], str]:
    """A started driver and its port; one ends at once where its port is taken over IPv6 alone."""
    with log.open("w") as said:
        for _ in range(_STARTS):
            driver = subprocess.Popen(
                ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=said, text=True
            )
            assert driver.stdout is not None
            for line in driver.stdout:
                if "successfully on port" in line:
                    return driver, line.split()[-1].rstrip(".")
                said.write(line)
            said.write(f"ended with {driver.wait(PATIENCE)}\n")
            said.flush()
    raise AssertionError(f"chromedriver did not start: {log.read_text()}")


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own in a folder."""
    driver, port = _driver(folder / "chromedriver.log")
    try:
        options = {"args": [*_ARGUMENTS, f"--user-data-dir={folder / 'profile'}"]}
        asked = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        server = f"http://127.0.0.1:{port}/session"
        address = f"{server}/{_post(server, asked)['sessionId']}"
        try:
            yield Browser(address)
        finally:
            request = urllib.request.Request(address, method="DELETE")
            urllib.request.urlopen(request, timeout=PATIENCE).close()
    finally:
        driver.terminate()
        driver.wait(PATIENCE)


def _post(url: str, body: Any) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)["value"]
