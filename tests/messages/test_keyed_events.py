"""Events as switches that match bring them to hosts are the packets that the stream would send."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.messages.attributes.keyed_events import KEY, packet_of_event
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.reference import read_packet

pytestmark = pytest.mark.unit

encodings = st.sampled_from(["id_pairs", "bitmask"])
widths = st.builds(Widths, st.sampled_from([8, 16]), st.sampled_from([8, 16, 32, 64]))
events = st.dictionaries(st.integers(0, 7), st.integers(0, 2**32 - 1), min_size=1)


@examples(100)
@given(events, encodings, widths, st.binary(min_size=10, max_size=10), st.integers(0, 2**64 - 1))
def test_an_event_is_a_packet_of_its_header_however_its_frame_was_filled_up(
    values, encoding, of, session, number
):
    header = write_event(values, encoding, b"", of)
    content = header + KEY.pack(session, number)
    # Ethernet fills up to 60 bytes, 14 of them its own.
    content += bytes(max(0, 46 - len(content)))
    assert read_packet(packet_of_event(content, encoding, of)) == (session, number, [header])


@examples(60)
@given(events, encodings, st.data())
def test_what_is_cut_off_is_no_event(values, encoding, data):
    content = write_event(values, encoding) + bytes(KEY.size)
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(MessageError):
        packet_of_event(content[:cut], encoding)
