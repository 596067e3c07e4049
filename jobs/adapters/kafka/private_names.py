"""The private names of kafka-python that Stackcast uses.

kafka-python has no public call that returns the socket of a connection. If a new version moves one
of these names, `tests/kafka/test_private_names.py` fails.
"""

from __future__ import annotations

import selectors
import socket
from typing import Any


def detach_socket(connection: Any) -> socket.socket:
    """Return the socket of a connection, which kafka-python then neither reads nor closes.

    Args:
        connection: a connection (`kafka.net.connection.KafkaConnection`) that is set up and waits
            for no response.
    """
    transport = connection.transport
    transport.pause_reading()
    sock: socket.socket = transport._sock
    transport._net.unregister_event(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
    transport._sock = None
    return sock
