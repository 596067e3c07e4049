"""What tests may use, by their marks: ``-m unit`` runs none that opens a server or is slow.

A file's mark counts for all of its tests; ``server`` and ``slow`` take single ones out.
"""

from __future__ import annotations

import socket
from typing import Any

import grpc
import pytest

#: What ``-m`` with one word selects, where that is less than what bears the mark.
SELECTED = {"unit": "unit and not server and not slow"}


class OpensServerError(AssertionError):
    """A test that opens a server is not marked so."""


def pytest_configure(config: pytest.Config) -> None:
    """Have ``-m unit`` mean the quick ones."""
    config.option.markexpr = SELECTED.get(config.option.markexpr, config.option.markexpr)


def is_unit(item: pytest.Item) -> bool:
    """Whether it must do without servers."""
    return bool(item.get_closest_marker("unit")) and not item.get_closest_marker("server")


@pytest.fixture(autouse=True)
def no_servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a unit test its servers."""
    if is_unit(request.node):
        monkeypatch.setattr(socket.socket, "bind", _refuse)
        monkeypatch.setattr(grpc, "server", _refuse)


def _refuse(*_: Any, **__: Any) -> None:
    raise OpensServerError("mark this test: @pytest.mark.server")
