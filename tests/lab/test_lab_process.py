"""Child processes: ready lines, answers, and ends that nothing can refuse."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

from lab.up.process import Child
from udfs.errors import LabError

pytestmark = pytest.mark.server


def python(name: str, text: str, folder: Path) -> Child:
    return Child(name, [sys.executable, "-u", "-S", "-c", text], folder / "child.log")


def test_a_child_says_that_it_is_ready_then_answers_line_by_line(tmp_path: Path) -> None:
    echo = "import sys\nprint('ready')\nfor line in sys.stdin: print(line.upper(), end='')"
    with python("echo", echo, tmp_path) as child:
        assert child.start(10) == "ready"
        assert [child.ask(word, 10) for word in ("one", "two")] == ["ONE", "TWO"]
        pid = child.pid
        assert child.alive()
    assert not child.alive() and pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_that_ends_instead_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    child = python("hothead", "raise SystemExit('no port is free')", tmp_path)
    with pytest.raises(LabError, match="no port is free") as failure:
        child.start(10)
    assert failure.value.code == "LAB.CHILD_FAILED"
    assert failure.value.status == 1


def test_one_that_says_nothing_is_given_up_and_ended(tmp_path: Path) -> None:
    child = python("mute", "import time; time.sleep(60)", tmp_path)
    with pytest.raises(LabError, match="nothing within") as failure:
        child.start(0.2)
    assert failure.value.code == "LAB.CHILD_SILENT"
    assert not child.alive()


def test_an_answer_that_came_too_late_is_not_taken_for_that_of_the_next_question(
    tmp_path: Path,
) -> None:
    """It holds all answers back until it is asked for them."""
    late = (
        "import sys\nprint('ready')\nheld = []\nfor line in sys.stdin:\n"
        "    held.append(line.upper())\n"
        "    if line == 'speak\\n':\n        print(*held, sep='', end='')\n        held = []"
    )
    with python("late", late, tmp_path) as child:
        child.start(10)
        for question in ("one", "two"):
            with pytest.raises(LabError) as failure:
                child.ask(question, 0.05)
            assert failure.value.code == "LAB.CHILD_SILENT"
        assert [child.ask("speak", 10), child.ask("speak", 10)] == ["SPEAK", "SPEAK"]


def test_one_that_ignores_every_request_to_end_is_killed(tmp_path: Path) -> None:
    deaf = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    child = python("deaf", deaf, tmp_path)
    child.start(10)
    began = time.monotonic()
    child.stop(0.2)
    assert time.monotonic() - began < 2
    assert not child.alive()


def test_ctrl_c_is_the_parents_to_handle(tmp_path: Path) -> None:
    echo = "import sys\nprint('ready')\nfor line in sys.stdin: print(line, end='')"
    with python("echo", echo, tmp_path) as child:
        child.start(10)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGINT)
        assert child.ask("still here", 10) == "still here"


def test_a_start_leaves_other_threads_their_connections_to_the_jvm(tmp_path: Path) -> None:
    """The lab's parts start while another thread starts Spark."""
    told, over = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def connect() -> None:
            gateway = ClientServer(JavaParameters(port=port), PythonParameters(eager_load=False))
            gateway._gateway_client.deque.append(gateway._gateway_client._create_new_connection())
            told.set()
            over.wait(20)

        threading.Thread(target=connect, daemon=True).start()
        jvm, _ = server.accept()
        with jvm, python("echo", "print('ready')\ninput()", tmp_path) as child:
            assert told.wait(20)
            child.start(10)
            jvm.settimeout(0.2)
            with pytest.raises(TimeoutError):
                jvm.recv(1)
            over.set()
            jvm.settimeout(20)
            assert jvm.recv(1) == b"", "it ends with its thread"
