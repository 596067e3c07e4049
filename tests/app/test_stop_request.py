"""A job that is asked to stop many times at once stops, and does not wait for itself."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from stackcast.udfs.stop_request import StopRequest

pytestmark = pytest.mark.unit

#: Thousands of signals to a main thread that waits for the request all the time.
SHOWER = """
import signal
from stackcast.udfs.stop_request import StopRequest

stop = StopRequest()
handled = 0

def handle(*_):
    global handled
    handled += 1
    stop.set()

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
while handled < 5000:
    stop.set()
    assert stop.wait(1e-5) and stop.is_set()
signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.integration
def test_signals_close_to_each_other_do_not_block_a_program():
    subprocess.run([sys.executable, "-c", SHOWER], check=True, timeout=600)


def test_it_is_set_for_all_waiting_threads_and_stays_set():
    stop = StopRequest()
    assert not stop.is_set() and not stop.wait(0.01)
    answers: list[bool] = []
    waiting = [
        threading.Thread(target=lambda: answers.append(stop.wait(600)), daemon=True)
        for _ in range(4)
    ]
    for thread in waiting:
        thread.start()
    stop.set()
    for thread in waiting:
        thread.join(600)
    assert answers == [True] * 4
    assert stop.is_set() and stop.wait() and stop.wait(0)
