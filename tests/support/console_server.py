"""A console for the browser of a test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from stackcast.jobs import console as job
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.console.application import Console
from stackcast.jobs.adapters.tables.tables import Tables

TOKEN = "a-token-of-the-tests"


def console(tables: Tables, **settings: object) -> Console:
    values = {"tables": tables.location, "publisher": "feed1", **settings}
    return job.console(Settings(**values), "", TOKEN, "127.0.0.1")


@contextmanager
def serving(application: Console) -> Iterator[str]:
    """Serve a console on a free port; yields the address."""
    listening = job.listener("127.0.0.1", 0)
    config = uvicorn.Config(
        application.application, log_config=None, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(600)
        listening.close()
