"""The UDP port that a compiled program takes for events."""

from __future__ import annotations

import json

_KEY = [{"type": "field", "value": ["udp", "dst_port"]}]


def event_ports(device_config: bytes) -> set[int]:
    """Ports by which the parser of a program tells events from other traffic.

    ``device_config``: what the target loads. Empty where it is no BMv2 JSON, or its parser asks for
    no port: other targets do not say.
    """
    try:
        parsers = json.loads(device_config)["parsers"]
        return {
            int(transition["value"], 16)
            for parser in parsers
            for state in parser["parse_states"]
            if state["transition_key"] == _KEY
            for transition in state["transitions"]
            if transition["type"] == "hexstr"
        }
    except (ValueError, KeyError, TypeError):
        return set()
