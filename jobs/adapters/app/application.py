"""Runs an application: log, settings, end, and the exit code of every way to end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from jobs.adapters.app import session
from jobs.adapters.app.error_texts import SQL_ERRORS, table_error
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.logs import set_up
from jobs.adapters.app.settings import Settings
from udfs.errors import StackcastError

log = logging.getLogger("stackcast")

FAILED = 2
INTERRUPTED = 130


def run(work: Callable[[Settings, Lifecycle], int]) -> int:
    """Run an application's ``work`` and return the exit code, its own or that of an error.

    Settings are checked before Spark starts. Every error that a user can meet is one line: 2 is
    for errors, 130 for Ctrl-C.
    """
    set_up()
    with Lifecycle() as lifecycle:
        try:
            code = work(Settings.read(session.properties()), lifecycle)
            lifecycle.check_standstill()
            return code
        except StackcastError as error:
            log.error("%s", error)
        except SQL_ERRORS as error:
            log.error("%s", table_error(error))
        except OSError as error:
            log.error("%s", error)
        except KeyboardInterrupt:
            log.warning("interrupted")
            return INTERRUPTED
    return FAILED
