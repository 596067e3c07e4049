"""Errors of Spark say in one line what happened."""

import pytest
from py4j.protocol import ERROR, Py4JError, get_return_value

from stackcast.jobs.adapters.app.error_texts import table_error

pytestmark = pytest.mark.unit


def test_a_jvm_that_is_gone_is_told_apart_from_one_that_refuses():
    with pytest.raises(Py4JError) as gone:
        get_return_value(ERROR, None, "o28", "contains")
    told = table_error(gone.value, "statement 4")
    assert told.code == "TABLE.NO_ANSWER" and str(told).startswith("TABLE.NO_ANSWER: statement 4: ")
    refused = table_error(Py4JError("An error occurred while calling o28.x. Trace: no method x"))
    assert refused.code == "TABLE.REFUSED" and "no method x" in str(refused)
