"""Opens p4runtime-shell, an interactive IPython shell, on one switch.

The only module that imports p4runtime-shell. That package requires an old protobuf, so it is
installed without its requirements, and uses our generated modules of P4Runtime's messages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from stackcast.jobs.adapters.switches.client import check_target
from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.schemas.p4runtime import (
    p4data_pb2,
    p4info_pb2,
    p4runtime_pb2,
    p4runtime_pb2_grpc,
    p4types_pb2,
)
from stackcast.udfs.errors import SwitchError

#: The version that was tested with the messages of P4Runtime 1.4.1.
SHELL = "p4runtime-shell==0.0.6"

_ANSWER_SECONDS = 5
_MODULES = {
    "p4.v1": {
        "p4data_pb2": p4data_pb2,
        "p4runtime_pb2": p4runtime_pb2,
        "p4runtime_pb2_grpc": p4runtime_pb2_grpc,
    },
    "p4.config.v1": {"p4info_pb2": p4info_pb2, "p4types_pb2": p4types_pb2},
}


def register_messages() -> None:
    """Make our generated modules importable by the names that p4runtime-shell imports.

    A second copy of the messages in one process would be an error of protobuf.
    """
    for package in ("p4", "p4.config", *_MODULES):
        module = ModuleType(package)
        module.__path__ = []
        sys.modules[package] = module
    for package, modules in _MODULES.items():
        for name, module in modules.items():
            sys.modules[f"{package}.{name}"] = module


def open_shell(
    name: str, address: str, device_id: int, credentials: Credentials, election_id: int = 0
) -> None:
    """Run the shell until its user leaves it.

    Args:
        name: name of the switch, for errors.
        address: ``host:port`` of the switch.
        device_id: P4Runtime's number of the switch at that address.
        credentials: those of this switch (``Credentials.for_switch``).
        election_id: id with which the shell requests the right to write; 0: it only reads.

    Raises:
        SwitchError: ``NO_SHELL``, if p4runtime-shell or IPython is not installed; ``BAD_TARGET`` as
            `check_target`; other errors as in `SwitchConnection`, if the switch does not answer or
            runs no program.
    """
    check_target(address, device_id, election_id, name)
    shell = _import_shell()
    # The shell itself waits for a switch that does not answer, and hangs when it ends.
    with SwitchConnection.connect(address, device_id, 0, credentials, name=name) as connection:
        _ = connection.names
    arguments = ["--grpc-addr", address, "--device-id", str(device_id)]
    arguments += ["--election-id", f"{election_id >> 64},{election_id & (1 << 64) - 1}"]
    if credentials.role:
        arguments += ["--role-name", credentials.role]
    if not credentials.plain:
        paths = {
            "--cacert": credentials.ca,
            "--cert": credentials.certificate,
            "--private-key": credentials.key,
        }
        arguments += ["--ssl", *(word for pair in paths.items() if pair[1] for word in pair)]
    if not election_id:
        shell.P4RuntimeClient = _reader(shell.P4RuntimeClient)
    shell.start_ipython = partial(_start_ipython, shell.start_ipython)
    sys.argv = ["stackcast switch shell", *arguments]
    shell.main()


def _start_ipython(start: Callable[..., None], config: Any, **options: Any) -> None:
    """Start IPython, and print errors in plain text without the stack of calls through gRPC."""
    config.InteractiveShell.xmode = "Minimal"
    # The output of our commands does not pass escape sequences on.
    config.InteractiveShell.colors = "nocolor"
    config.TerminalInteractiveShell.enable_tip = False
    config.TerminalInteractiveShell.confirm_exit = False
    start(config=config, **options)


def _reader(client: Any) -> Any:
    """Return the shell's class of clients without its election id: it never becomes primary."""

    class Reader(client):  # type: ignore[misc]
        def handshake(self) -> None:
            request = p4runtime_pb2.StreamMessageRequest()
            request.arbitration.device_id = self.device_id
            if self.role_name is not None:
                request.arbitration.role.name = self.role_name
            self.stream_out_q.put(request)
            if self.get_stream_packet("arbitration", timeout=_ANSWER_SECONDS) is None:
                raise SystemExit("the switch did not answer")

    return Reader


def _import_shell() -> Any:
    register_messages()
    try:
        from p4runtime_sh import shell  # noqa: PLC0415
    except ModuleNotFoundError as error:
        missing = {"p4runtime_sh": f"--no-deps {SHELL}", "IPython": "ipython"}
        package = missing.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise SwitchError(
            "NO_SHELL",
            "the shell requires a package that is not installed: install it with "
            f"{sys.executable} -m pip install {package}",
        ) from None
    return shell
