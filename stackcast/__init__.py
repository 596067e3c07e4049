"""Stackcast delivers each event to exactly the hosts that subscribed to it.

This module has the names for programs of users. Each of them is imported when it is used: importing
`stackcast` loads neither Spark nor numba.

In a checkout, the packages are links to folders at its root. Modules are imported only by names
that start with ``stackcast.``, so that each module has one name and is loaded once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from stackcast.requirements import check_python

if TYPE_CHECKING:
    __version__: str
    from stackcast.jobs.adapters.app.settings import Settings
    from stackcast.jobs.adapters.states.client import StatesClient
    from stackcast.jobs.adapters.states.replica import Replica
    from stackcast.udfs.columns import match, matching
    from stackcast.udfs.errors import StackcastError
    from stackcast.udfs.filters.subscriptions import Subscription
    from stackcast.udfs.messages.recovery.events import ReceiverOptions
    from stackcast.udfs.messages.recovery.receiver import Receiver
    from stackcast.udfs.messages.summaries import request
    from stackcast.udfs.messages.summary_keys import HostKeys, read_keys

__all__ = [
    "HostKeys",
    "Receiver",
    "ReceiverOptions",
    "Replica",
    "Settings",
    "StackcastError",
    "StatesClient",
    "Subscription",
    "__version__",
    "match",
    "matching",
    "read_keys",
    "request",
]

check_python(sys.version_info[:3])

_MODULES = {
    "HostKeys": "udfs.messages.summary_keys",
    "Receiver": "udfs.messages.recovery.receiver",
    "ReceiverOptions": "udfs.messages.recovery.events",
    "Replica": "jobs.adapters.states.replica",
    "Settings": "jobs.adapters.app.settings",
    "StackcastError": "udfs.errors",
    "StatesClient": "jobs.adapters.states.client",
    "Subscription": "udfs.filters.subscriptions",
    "match": "udfs.columns",
    "matching": "udfs.columns",
    "read_keys": "udfs.messages.summary_keys",
    "request": "udfs.messages.summaries",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = import_module("importlib.metadata").version("stackcast")
    elif name in _MODULES:
        value = getattr(import_module(f"stackcast.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module 'stackcast' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
