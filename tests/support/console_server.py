"""Consoles for the browser of a test: of tables, or without them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from stackcast.jobs import console as job
from stackcast.jobs.adapters.app.connections import Limits, configuration
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.console.application import Console, Views
from stackcast.jobs.adapters.tables.tables import Tables

TOKEN = "a-token-of-the-tests"


def console(tables: Tables, **settings: object) -> Console:
    values = {"tables": tables.location, "publisher": "feed1", **settings}
    return job.console(Settings(**values), "", TOKEN, "127.0.0.1")


class View:
    """Records the names of the methods that are called, which return an empty object by default."""

    def __init__(self, **answers: Callable[..., Any]) -> None:
        self.calls: list[str] = []
        self._answers = answers

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def answer(*arguments: Any) -> Any:
            self.calls.append(name)
            return self._answers[name](*arguments) if name in self._answers else {}

        return answer


def stub(**answers: Callable[..., Any]) -> tuple[Console, View]:
    """Returns a console without tables, and the view that it calls."""
    view = View(**answers)
    views: Any = Views(*[view] * 5)  # type: ignore[list-item]
    return Console(views, TOKEN, {}, ["127.0.0.1"]), view


@contextmanager
def serving(application: Console, limits: Limits | None = None) -> Iterator[str]:
    """Serve a console on a free port, as the job does; yields the address."""
    listening = job.listener("127.0.0.1", 0)
    server = uvicorn.Server(
        configuration(application.application, limits, 1, application.has_token)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(600)
        listening.close()
