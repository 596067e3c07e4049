"""Child processes: ready lines, answers, and ends that no child can refuse."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from waiting import still_runs

from stackcast.lab.up.process import Child
from stackcast.udfs.errors import LabError

pytestmark = pytest.mark.integration

#: Limit against hangs, in seconds.
LIMIT = 600


def python(name: str, text: str, folder: Path) -> Child:
    return Child(name, [sys.executable, "-u", "-S", "-c", text], folder / "child.log")


def test_a_child_reports_that_it_is_ready_then_answers_line_by_line(tmp_path: Path) -> None:
    echo = "import sys\nprint('ready')\nfor line in sys.stdin: print(line.upper(), end='')"
    with python("echo", echo, tmp_path) as child:
        assert child.start(LIMIT) == "ready"
        assert [child.ask(word, LIMIT) for word in ("one", "two")] == ["ONE", "TWO"]
        pid = child.pid
        assert child.alive()
    assert not child.alive() and pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_child_that_ends_instead_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    child = python("hothead", "raise SystemExit('no port is free')", tmp_path)
    with pytest.raises(LabError, match="no port is free") as failure:
        child.start(LIMIT)
    assert failure.value.code == "LAB.CHILD_FAILED"
    assert failure.value.status == 1


def test_a_child_that_prints_nothing_is_ended(tmp_path: Path) -> None:
    child = python("mute", f"import time; time.sleep({LIMIT})", tmp_path)
    with pytest.raises(LabError, match="did not respond within") as failure:
        child.start(0.2)
    assert failure.value.code == "LAB.CHILD_SILENT"
    assert not child.alive()


def test_a_late_answer_is_not_taken_for_the_answer_to_the_next_question(tmp_path: Path) -> None:
    """The child keeps all answers back until it is asked to speak."""
    late = (
        "import sys\nprint('ready')\nanswers = []\nfor line in sys.stdin:\n"
        "    answers.append(line.upper())\n"
        "    if line == 'speak\\n':\n        print(*answers, sep='', end='')\n        answers = []"
    )
    with python("late", late, tmp_path) as child:
        child.start(LIMIT)
        for question in ("one", "two"):
            with pytest.raises(LabError) as failure:
                child.ask(question, 0.05)
            assert failure.value.code == "LAB.CHILD_SILENT"
        assert [child.ask("speak", LIMIT), child.ask("speak", LIMIT)] == ["SPEAK", "SPEAK"]


def test_a_child_that_ignores_every_request_to_end_is_killed(tmp_path: Path) -> None:
    deaf = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"print('ready', flush=True)\ntime.sleep({2 * LIMIT})"
    )
    child = python("deaf", deaf, tmp_path)
    child.start(LIMIT)
    pid = child.pid
    assert pid is not None
    stopping = threading.Thread(target=child.stop, args=(0.2,), daemon=True)
    stopping.start()
    stopping.join(LIMIT)
    assert not stopping.is_alive()
    assert not child.alive() and not still_runs(pid)


def test_the_parent_handles_ctrl_c(tmp_path: Path) -> None:
    echo = "import sys\nprint('ready')\nfor line in sys.stdin: print(line, end='')"
    with python("echo", echo, tmp_path) as child:
        child.start(LIMIT)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGINT)
        assert child.ask("still here", LIMIT) == "still here"


def test_a_start_leaves_other_threads_their_connections_to_the_jvm(tmp_path: Path) -> None:
    """The lab's parts start while another thread starts Spark."""
    connected, over = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def connect() -> None:
            gateway = ClientServer(JavaParameters(port=port), PythonParameters(eager_load=False))
            gateway._gateway_client.deque.append(gateway._gateway_client._create_new_connection())
            connected.set()
            over.wait(LIMIT)

        threading.Thread(target=connect, daemon=True).start()
        jvm, _ = server.accept()
        with jvm, python("echo", "print('ready')\ninput()", tmp_path) as child:
            assert connected.wait(LIMIT)
            child.start(LIMIT)
            jvm.settimeout(0.2)
            with pytest.raises(TimeoutError):
                jvm.recv(1)
            over.set()
            jvm.settimeout(LIMIT)
            assert jvm.recv(1) == b"", "it ends with its thread"
