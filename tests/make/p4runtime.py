"""Generates the modules of P4Runtime's messages: ./spark-submit.sh make p4runtime.

The definitions are in ``schemas/p4runtime/proto``, unchanged from P4Runtime 1.4.1. The compiler of
grpcio-tools writes modules that import each other as ``p4.v1`` and ``p4.config.v1``; their imports
are changed, because the modules are part of the package ``stackcast.schemas.p4runtime``.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from google.rpc import status_pb2
from grpc_tools import protoc
from paths import ROOT

from stackcast.command_line import ArgumentParser

FOLDER = ROOT / "schemas" / "p4runtime"
PROTO = FOLDER / "proto"
PACKAGE = "stackcast.schemas.p4runtime"

_IMPORT = re.compile(r"^from p4(?:\.config)?\.v1 import ", re.MULTILINE)


def generate() -> dict[str, str]:
    """Return the text of each generated module by its file name.

    Raises:
        SystemExit: the compiler refused a definition.
    """
    definitions = sorted(path.relative_to(PROTO).as_posix() for path in PROTO.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"-I{path}" for path in (PROTO, *_includes())]
        arguments += [f"--python_out={folder}", f"--grpc_python_out={folder}"]
        if protoc.main(["protoc", *arguments, *definitions]):
            raise SystemExit("protoc refused a definition in schemas/p4runtime/proto")
        return {
            path.name: _IMPORT.sub(f"from {PACKAGE} import ", path.read_text())
            for path in sorted(Path(folder).rglob("*.py"))
            # Only P4Runtime itself defines a service.
            if "Servicer" in path.read_text() or not path.name.endswith("_grpc.py")
        }


def _includes() -> list[Path]:
    """Return the folders of the definitions that P4Runtime imports."""
    return [Path(protoc.__file__).parent / "_proto", Path(status_pb2.__file__).parents[2]]


def main() -> None:
    parser = ArgumentParser("./spark-submit.sh make p4runtime", description=__doc__)
    parser.parse_args()
    for name, text in generate().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
