"""Runs an application: log, settings, errors and exit code."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, table_error
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.logs import set_up
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.requirements import check_packages
from stackcast.udfs.errors import StackcastError

log = logging.getLogger("stackcast")

FAILED = 2
#: Exit code of a program that a signal ended: this and the number of the signal.
SIGNALLED = 128
INTERRUPTED = SIGNALLED + signal.SIGINT


def run(work: Callable[[Settings, Lifecycle], int]) -> int:
    """Run an application and log its error, if it raises one, as one line.

    Versions of packages and settings are checked before Spark starts.

    Args:
        work: the application; it returns an exit code.

    Returns:
        2 after an error, 130 after Ctrl-C. If ``work`` has returned, 128 and the number of the
        signal that the JVM has received; without a signal, the code of ``work``.
    """
    set_up()
    with Lifecycle() as lifecycle:
        try:
            check_packages()
            code = work(Settings.read(session.properties()), lifecycle)
            lifecycle.check_standstill()
            return SIGNALLED + lifecycle.jvm_signal if lifecycle.jvm_signal else code
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
