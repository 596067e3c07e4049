"""The software switch against BMv2 itself: the same programs, tables and frames."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pytest
from feature_cases import FEATURES, PORTS, receivable
from real_switch import RealSwitch

pytestmark = [pytest.mark.integration, pytest.mark.bmv2]

FRAMES = 400


@pytest.fixture(scope="module")
def real(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealSwitch]:
    switch = RealSwitch(
        str(pytestconfig.getoption("--bmv2")), tmp_path_factory.mktemp("bmv2"), PORTS
    )
    yield switch
    switch.close()


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_program_does_what_it_does_in_bmv2(name: str, real: RealSwitch) -> None:
    feature = FEATURES[name]
    real.load(feature.info(), feature.json())
    real.insert(feature.entries)
    switch = feature.switch()
    seed = random.randrange(1 << 32)
    for port, frame in islice(feature.frames(random.Random(seed)), FRAMES):
        expected = receivable(switch.process(port, frame))
        assert sorted(real.process(port, frame, len(expected))) == expected, (seed, frame.hex())
    if name == "feature_state":
        for counter in ("ingress.frames", "ingress.frames_alone", "egress.sent"):
            ours = [switch.counter(counter, at) for at in range(switch.counter_size(counter))]
            assert [packets for packets, _ in ours] == [p for p, _ in real.counter(counter)]
