"""Runs an application: log, settings, errors and exit code."""

from __future__ import annotations

import logging
import signal
import sys
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

    Versions of packages and settings are checked before Spark starts. The session that the
    application has started is stopped, and its error is logged after that, so that no line of Spark
    follows the error.

    Args:
        work: the application; it returns an exit code.

    Returns:
        2 after an error, 130 after Ctrl-C. If ``work`` has returned, 128 and the number of the
        signal that the JVM has received; without a signal, the code of ``work``.
    """
    set_up()
    before = session.active()
    with Lifecycle() as lifecycle:
        code, error = _outcome(work, lifecycle)
        spark = session.active()
        if spark is not None and spark is not before:
            session.end(spark, silently=code in (FAILED, INTERRUPTED))
    # Results of the job come before its error.
    sys.stdout.flush()
    if error:
        log.error("%s", error)
    elif code == INTERRUPTED:
        log.warning("interrupted")
    return code


def _outcome(work: Callable[[Settings, Lifecycle], int], lifecycle: Lifecycle) -> tuple[int, str]:
    """Return the exit code of an application, and the text of its error, which is empty without
    one."""
    try:
        check_packages()
        code = work(Settings.read(session.properties()), lifecycle)
        lifecycle.check_standstill()
    except SQL_ERRORS as error:
        return FAILED, str(table_error(error))
    except (StackcastError, OSError) as error:
        return FAILED, str(error)
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    return (SIGNALLED + lifecycle.jvm_signal if lifecycle.jvm_signal else code), ""
