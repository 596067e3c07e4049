"""Names of the shipped P4 programs: those of column ``pipeline`` of ``switches``."""

from __future__ import annotations

from collections.abc import Mapping

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.encodings import ALL, WIDE_FORMS, label_bits
from stackcast.udfs.network.labels import LabelFormat

STACKS: Mapping[str, LabelFormat] = {form.program: form for form in ALL}
"""Programs that forward by header stacks, with the labels that they read."""

FILTERING = "packet_subscriptions"
"""The program of switches that match messages of one format: it reads no stacks."""

ATTRIBUTES = "attribute_value"
"""The program of switches that match attribute/value events, whatever attributes there are."""

EVENT = "ingress.subscriptions.event"
"""The generic table of `ATTRIBUTES` (KUNDEL III-C)."""

PASSES = "ingress.subscriptions.passes"
"""The table of `ATTRIBUTES` that says what is matched in which pass."""

STATES = "ingress.subscriptions.cells.states"
"""The table of `ATTRIBUTES` that says who gets an event by the state that it finds."""

VALUES = "ingress.subscriptions.value_"
"""What the tables of `ATTRIBUTES` begin with that hold bit vectors; the attribute's id follows."""

REPLICATING = ("state_replication", "state_replication_table")
"""The programs of switches that carry replicated state: they read no stacks and match nothing."""

MATCHING = frozenset({FILTERING, ATTRIBUTES})
"""Programs of switches that match."""


def matching_program(message_format: str) -> str:
    """Returns the program that matches events of this format: a name of ``schemas/messages``, or
    ``attributes``."""
    return ATTRIBUTES if message_format == "attributes" else FILTERING


def check_labels(pipelines: Mapping[str, str], labels: LabelFormat) -> None:
    """Refuses switches that would drop every stack, as they read labels of another width.

    pipelines: program of each switch; unknown ones may read any labels. Raises NetworkError
    ``WRONG_PIPELINE``.
    """
    for switch, name in sorted(pipelines.items()):
        read = STACKS.get(name, labels)
        if read != labels:
            raise NetworkError(
                "WRONG_PIPELINE",
                f"switch {switch!r} runs pipeline {name!r}, which implements {_settings(read)}, "
                f"but the configuration has {_settings(labels)}: set column pipeline of table "
                f"switches to {labels.program!r}, or change the settings",
                switch=switch,
            )


def _settings(labels: LabelFormat) -> str:
    """Returns the settings that choose a format."""
    said = f"spark.stackcast.encoding {labels.encoding}"
    wide = labels.encoding in WIDE_FORMS
    return f"{said} with label.bits {label_bits(labels)}" if wide else said
