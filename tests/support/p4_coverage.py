"""Which statements a compiled program has, and which of them ran: by file, line and text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stackcast.switch.bmv2.packet import Packet
from stackcast.switch.bmv2.simple_switch import SimpleSwitch


def statements_of(config: bytes) -> set[str]:
    """``file:line: (text)`` of what a BMv2 JSON says that it does.

    That is: operations of parser states, primitives of actions that some table or the deparser
    calls, and conditions. Found in the JSON itself, without the compiler's help.
    """
    program = json.loads(config)
    called = {
        number
        for pipeline in program["pipelines"]
        for table in pipeline["tables"]
        for number in table["action_ids"]
    }
    nodes = [
        *(
            op
            for parser in program["parsers"]
            for s in parser["parse_states"]
            for op in s["parser_ops"]
        ),
        *(
            op
            for action in program["actions"]
            if action["id"] in called
            for op in action["primitives"]
        ),
        *(test for pipeline in program["pipelines"] for test in pipeline["conditionals"]),
    ]
    return {place for node in nodes for place in _place(node)}


def executed(switch: SimpleSwitch) -> set[str]:
    """The same of what has run in a switch that notes its coverage."""
    program = switch.program
    assert program is not None
    ran = (program.coverage_points[number] for number in program.covered)
    return {text.rpartition(") ")[0] + ")" for text in ran if ") " in text}


def missed(switch: SimpleSwitch) -> set[str]:
    """Points of the compiled program that have not run: finer, with both sides of a condition."""
    program = switch.program
    assert program is not None
    return {text for key, text in program.coverage_points.items() if key not in program.covered}


def _place(node: dict[str, Any]) -> Iterator[str]:
    info = node.get("source_info")
    if info:
        text = " ".join(str(info.get("source_fragment", "")).split())
        yield f"{info.get('filename', '')}:{info.get('line', '')}: ({text})"


def soil(monkeypatch: pytest.MonkeyPatch, switch: SimpleSwitch, config: bytes) -> None:
    """Let each pass begin with all bits of metadata set, but of what is kept and of the target's.

    The target's own is ``standard_metadata``, which is as it should be. ``config`` is what the
    switch runs; it must remember no results.
    """
    program = switch.program
    assert program is not None
    described = json.loads(config)
    types = {kind["name"]: kind["fields"] for kind in described["header_types"]}
    ones = {
        program.field_slot(header["name"], name): (1 << bits) - 1
        for header in described["headers"]
        if header["metadata"] and header["name"] != "standard_metadata"
        for name, bits, *_ in types[header["header_type"]]
    }
    assert ones
    begin, reset = program.packet, program.reset_metadata

    def soiled(packet: Packet) -> None:
        for slot, value in ones.items():
            packet.fields[slot] = value

    def packet(data: bytes, ingress_port: int) -> Packet:
        made = begin(data, ingress_port)
        soiled(made)
        return made

    def reset_metadata(packet: Packet) -> None:
        reset(packet)
        soiled(packet)

    monkeypatch.setattr(program, "packet", packet)
    monkeypatch.setattr(program, "reset_metadata", reset_metadata)
