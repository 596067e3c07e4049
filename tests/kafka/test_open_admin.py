"""The client for the administration of Kafka is chosen by the options."""

from __future__ import annotations

from typing import Any

import pytest

from stackcast.jobs.adapters.kafka.open_admin import open_admin
from stackcast.udfs.errors import KafkaError

pytestmark = pytest.mark.unit


def test_without_a_broker_in_the_settings_the_error_names_the_setting() -> None:
    no_session: Any = None
    with pytest.raises(KafkaError, match=r"kafka\.bootstrap\.servers is not set") as error:
        open_admin(no_session, {"client.id": "stackcast"})
    assert error.value.what == "BAD_OPTION"
