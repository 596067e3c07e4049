"""Compiles the P4 programs: ./spark-submit.sh make p4 --p4c FILE [--bmv2 FILE].

With ``--widths 16/64 --out FOLDER`` it only compiles ``attribute_value.p4`` for ids of 16 and
bitmasks of 64 bits, into a folder for ``spark.stackcast.p4.folder``.

It writes the program that is generated from the ITCH specification and, in the folder ``compiled``
of each of ``p4/``, ``tests/p4/`` and ``benchmarks/p4/text/``, the products of all programs and
their ``CHECKSUMS``. With BMv2, which needs the right to create network interfaces, it also writes
BMv2's answers to the feature programs.
"""

from __future__ import annotations

import shutil
import tempfile
from itertools import islice
from pathlib import Path
from random import Random

import p4_products
from feature_cases import FEATURES, PORTS, receivable
from paths import P4
from real_switch import RealSwitch

from stackcast import schemas
from stackcast.cli.attributes.files import widths_of
from stackcast.command_line import ArgumentParser
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.programs import ATTRIBUTES
from stackcast.udfs.network_match.layout import program_layout
from stackcast.udfs.p4_program.program import files

GENERATED = "packet_subscriptions"


def generated() -> dict[str, str]:
    """Return the text of each file of the generated program, by its path within ``p4/``."""
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    return files(program_layout(itch))


def write_generated() -> None:
    """Write the generated program, and remove the files of an earlier one."""
    shutil.rmtree(P4 / GENERATED, ignore_errors=True)
    for name, text in generated().items():
        path = P4 / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def write_products(p4c: str) -> None:
    """Compile all programs, and write their sums."""
    for folder in p4_products.FOLDERS:
        for name in p4_products.programs(folder):
            texts = p4_products.compile_program(p4c, folder / f"{name}.p4")
            for path, text in zip(p4_products.products(name, folder), texts, strict=True):
                path.write_text(text)
        p4_products.write_sums(folder)


def write_widths(p4c: str, widths: str, folder: Path) -> None:
    """Compile the program of attributes for headers of other widths."""
    folder.mkdir(parents=True, exist_ok=True)
    info, program = p4_products.compile_program(
        p4c, P4 / f"{ATTRIBUTES}.p4", p4_products.width_options(widths_of(widths))
    )
    (folder / f"{ATTRIBUTES}.p4info.txtpb").write_text(info)
    (folder / f"{ATTRIBUTES}.json").write_text(program)


def write_answers(bmv2: str) -> None:
    """Send frames through BMv2, and write the copies that it returns."""
    with tempfile.TemporaryDirectory() as folder:
        real = RealSwitch(bmv2, Path(folder), PORTS)
        try:
            for feature in FEATURES.values():
                real.load(feature.info(), feature.json())
                real.insert(feature.entries)
                switch = feature.switch()  # gives the number of copies to wait for
                rows = []
                frames = islice(feature.frames(Random(feature.name)), feature.recorded)
                for port, frame in frames:
                    expected = len(receivable(switch.process(port, frame)))
                    copies = sorted(real.process(port, frame, expected, quiet=0.05))
                    words = [str(port), frame.hex(), *(f"{p}:{b.hex()}" for p, b in copies)]
                    rows.append(" ".join(words) + "\n")
                feature.answers_file.write_text("".join(rows))
        finally:
            real.close()


def main() -> None:
    parser = ArgumentParser("./spark-submit.sh make p4", description=__doc__)
    parser.add_argument("--p4c", metavar="FILE", required=True, help="p4c-bm2-ss")
    parser.add_argument("--bmv2", metavar="FILE", help="simple_switch_grpc")
    parser.add_argument("--widths", metavar="K/N", help="bits of ids and of bitmasks, as 16/64")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="for the products of --widths")
    options = parser.parse_args()
    if (options.widths is None) != (options.out is None):
        parser.error("--widths and --out go together")
    if options.widths is not None:
        write_widths(options.p4c, options.widths, options.out)
        return
    write_generated()
    write_products(options.p4c)
    if options.bmv2:
        write_answers(options.bmv2)


if __name__ == "__main__":
    main()
