"""Metrics and health of the jobs of replicated states."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from paths import COMPILED_P4
from virtual_time import VirtualTime

from stackcast.jobs.adapters.states.metrics import ControllerMetrics, PublisherMetrics
from stackcast.udfs.states.controller import Controller
from stackcast.udfs.states.messages import MOST_VNF, REGISTER_STATES, Signal, SignalKind
from stackcast.udfs.states.programs import FIRST_VNF

pytestmark = pytest.mark.unit


def test_tables_that_stand_still_are_told_though_facts_go_on():
    clock = VirtualTime()
    made = ControllerMetrics(clock)
    made.recorded()
    assert made.health().status == "ok"
    clock.sleep(61)
    made.recorded()
    assert made.health().status == "unhealthy"
    made.merged(2)
    assert made.health().status == "ok"


def test_updates_that_nobody_confirms_are_told():
    clock = VirtualTime()
    made = PublisherMetrics(clock)
    assert made.health().status == "ok"
    made.published(7)
    clock.sleep(61)
    made.published(7)
    assert made.health().status == "unhealthy"
    made.confirmed()
    assert made.health().status == "ok"


def test_numbers_left_and_states_beyond_the_registers_are_counted():
    controller = Controller()
    controller.from_middleware(1, Signal(SignalKind.LEASE, data=bytes(4)), 0.0)
    made = ControllerMetrics()
    made.watch(SimpleNamespace(controller=controller))
    value = made.registry.get_sample_value
    left = value("stackcast_state_program_numbers_remaining")
    assert left == MOST_VNF - FIRST_VNF + 1
    controller.from_middleware(1, Signal(SignalKind.INIT_VNF, data=b"a"), 0.0)
    assert value("stackcast_state_program_numbers_remaining") == left - 1
    for number in range(REGISTER_STATES):
        assert value("stackcast_state_names_beyond_registers") == 0
        signal = Signal(SignalKind.SUB_REG, FIRST_VNF, data=b"%d" % number)
        controller.from_middleware(1, signal, 0.0)
    assert value("stackcast_state_names") == REGISTER_STATES
    assert value("stackcast_state_names_beyond_registers") == 1


def test_the_registers_of_the_program_have_the_size_that_is_counted():
    program = json.loads((COMPILED_P4 / "state_replication.json").read_text())
    assert {array["size"] for array in program["register_arrays"]} == {REGISTER_STATES}
