"""Virtual-tree frames: header templates, and the builder that fills them (WERNECKE 5.2.6).

    Ethernet 14 | num_entries 2 | label 2 x n | IPv4 20 | UDP 8 | MoldUDP64 20 | (length 2, bytes)*

Wide labels have 4 bytes, and frames with them another EtherType.

A template is everything up to UDP, made once for a leaf and version of the tables. The builder
copies it in front of the messages and fills in lengths and checksums; no Python statement runs
per message or frame.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from ipaddress import IPv4Address
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import StackError
from stackcast.udfs.messages.buffers import read_only
from stackcast.udfs.messages.sequence import INDEX_BITS, OFFSET_SHIFT
from stackcast.udfs.network.labels import NARROW, LabelFormat
from stackcast.udfs.stacks import kernels
from stackcast.udfs.stacks.kernels import NOT_WORKED_OUT
from stackcast.udfs.stacks.link_layer import ETHERTYPE_IPV4

MAX_MTU = 65_535
PROTOCOL_UDP = 17
#: Bytes of a template that belong to the datagram.
DATAGRAM = kernels.IPV4 + kernels.UDP

_DONT_FRAGMENT = 0x4000


def multicast_mac(group_ipv4: int) -> int:
    """Returns the Ethernet address of an IPv4 multicast group: 01:00:5e, its low 23 bits (RFC
    1112)."""
    return 0x01005E000000 | (group_ipv4 & 0x7FFFFF)


def header_template(
    labels: Sequence[int],
    source_mac: int,
    source_ipv4: int,
    group_ipv4: int,
    port: int,
    *,
    source_port: int | None = None,
    ttl: int = 64,
    label_format: LabelFormat = NARROW,
) -> bytes:
    """Makes the headers of every frame that carries this stack; lengths and checksums are still 0.

    Parameters
    ----------
    labels: 1 to 64 labels, of port bitmaps 512, in the order of the stack.
    source_mac, source_ipv4: the publisher's addresses as integers.
    group_ipv4: multicast group that the hosts listen to; it also gives the destination MAC.
    port: UDP destination port; also the source port, unless one is given.
    label_format: the network's, which all labels must be of.

    Raises StackError ``EMPTY_STACK``, ``TOO_MANY_LABELS``, ``BAD_LABEL``, ``NOT_MULTICAST``.
    """
    if not labels:
        raise StackError("EMPTY_STACK", "the header stack is empty: it needs at least one label")
    if len(labels) > label_format.max_labels:
        raise StackError(
            "TOO_MANY_LABELS",
            f"the header stack has {len(labels)} labels, but switches parse at most "
            f"{label_format.max_labels}: divide the receivers among several stacks",
            labels=len(labels),
        )
    for label in labels:
        label_format.check(label)
    if group_ipv4 >> 28 != 0xE:
        raise StackError(
            "NOT_MULTICAST",
            f"{IPv4Address(group_ipv4)} is not a multicast group: choose an address in 224.0.0.0/4",
            group=group_ipv4,
        )
    ethernet = multicast_mac(group_ipv4).to_bytes(6) + source_mac.to_bytes(6)
    stack = label_format.ether_type.to_bytes(2) + label_format.pack(labels)
    source = port if source_port is None else source_port
    return ethernet + stack + _datagram_header(source_ipv4, group_ipv4, source, port, ttl)


def plain_template(
    source_mac: int, source_ipv4: int, mac: int, ipv4: int, port: int, *, ttl: int = 64
) -> bytes:
    """Makes the headers of frames without a stack to one host; lengths and checksums are still 0.

    source_mac, source_ipv4: the publisher's addresses as integers. mac, ipv4: the host's. port: UDP
    source and destination port.
    """
    ethernet = mac.to_bytes(6) + source_mac.to_bytes(6) + ETHERTYPE_IPV4.to_bytes(2)
    return ethernet + _datagram_header(source_ipv4, ipv4, port, port, ttl)


def _datagram_header(source: int, destination: int, from_port: int, port: int, ttl: int) -> bytes:
    # Identification 0: a datagram that is never fragmented needs none (RFC 6864), and the same
    # packet sent again has the same bytes.
    ipv4 = struct.pack(
        ">BBHHHBBHII", 0x45, 0, 0, 0, _DONT_FRAGMENT, ttl, PROTOCOL_UDP, 0, source, destination
    )
    return ipv4 + struct.pack(">HHHH", from_port, port, 0, 0)


def label_capacity(mtu: int, longest: int, label_format: LabelFormat) -> int:
    """Returns the most labels of a stack beside a message of ``longest`` bytes, below 1 if none
    fit.

    mtu: bytes that a frame may have after its Ethernet header.
    """
    left = mtu - 2 - DATAGRAM - kernels.MOLDUDP64 - 2 - longest
    return left // label_format.size


def message_capacity(mtu: int, labels: int, label_format: LabelFormat) -> int:
    """Returns the bytes of the longest message that fits beside a stack of as many labels."""
    used = 2 + labels * label_format.size + DATAGRAM + kernels.MOLDUDP64 + 2
    return max(0, mtu - used)


@dataclass(frozen=True)
class FrameTemplates:
    """Holds the templates of leaves in one pool; picklable, read-only.

    data: uint8[bytes]. start: int64[k+1], template t is ``data[start[t]:start[t+1]]``.
    first, count: int32[L], leaf l has the templates ``first[l]`` up to and without
    ``first[l] + count[l]``. A leaf without any (leaf 0, nobody) is never sent; of others nobody
    knows yet which they have: these are `NOT_WORKED_OUT`.
    """

    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    first: NDArray[np.int32]
    count: NDArray[np.int32]

    @classmethod
    def build(cls, leaves: Sequence[Sequence[bytes] | None]) -> FrameTemplates:
        """Pools the templates (see :func:`header_template`) of leaf 0, 1, ...; None: not known."""
        none = cls(
            np.zeros(0, np.uint8),
            np.zeros(1, np.int64),
            np.zeros(len(leaves), np.int32),
            np.full(len(leaves), NOT_WORKED_OUT, np.int32),
        )
        return none.with_leaves({leaf: t for leaf, t in enumerate(leaves) if t is not None})

    def with_leaves(self, leaves: Mapping[int, Sequence[bytes]]) -> FrameTemplates:
        """Returns these and the templates of leaves that were not worked out; numbers stay."""
        pooled = [template for templates in leaves.values() for template in templates]
        sizes = np.array([len(template) for template in pooled], np.int64)
        start = np.concatenate((self.start, self.start[-1] + np.cumsum(sizes)))
        data = np.concatenate((self.data, np.frombuffer(b"".join(pooled), np.uint8)))
        first, count = self.first.copy(), self.count.copy()
        at = self.templates
        for leaf, templates in leaves.items():
            first[leaf], count[leaf] = at, len(templates)
            at += len(templates)
        return FrameTemplates(data, start, first, count)

    def grown(self, leaves: int) -> FrameTemplates:
        """Returns these for so many leaves, of which the new ones are not worked out."""
        more = leaves - self.leaves
        if not more:
            return self
        first = np.concatenate((self.first, np.zeros(more, np.int32)))
        count = np.concatenate((self.count, np.full(more, NOT_WORKED_OUT, np.int32)))
        return FrameTemplates(self.data, self.start, first, count)

    def __getstate__(self) -> dict[str, Any]:
        # What follows from these is made again where it is asked for.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def leaves(self) -> int:
        return self.first.size

    @property
    def templates(self) -> int:
        return self.start.size - 1

    @cached_property
    def complete(self) -> bool:
        """True if every leaf is worked out."""
        return not bool((self.count == NOT_WORKED_OUT).any())

    @cached_property
    def longest(self) -> NDArray[np.int64]:
        """Bytes of the longest template of each leaf, int64[L]; 0 where it has none."""
        longest = np.zeros(self.leaves, np.int64)
        np.maximum.at(longest, self.leaf, np.diff(self.start))
        return longest

    @cached_property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """What `kernels.build` reads, each of one type."""
        return (
            read_only(self.data, np.uint8),
            read_only(self.start, np.int64),
            read_only(self.first, np.int32),
            read_only(self.count, np.int32),
            read_only(self.longest, np.int64),
        )

    @cached_property
    def leaf(self) -> NDArray[np.int32]:
        """The leaf of each template, int32[k]."""
        owners = np.flatnonzero(self.count > 0)
        owners = owners[np.argsort(self.first[owners])]
        return np.repeat(owners, self.count[owners]).astype(np.int32)

    def lacking(self, leaf: NDArray[np.int32]) -> list[int]:
        """Returns those among leaf numbers that are not worked out; ascending, each once."""
        if self.complete:
            return []
        wanted = leaf[self.count[leaf] == NOT_WORKED_OUT]
        return np.unique(wanted).tolist() if wanted.size else []


class MessagePositions(Protocol):
    """The columns of :class:`stackcast.udfs.messages.moldudp64.Messages` that the builder reads; by
    packet."""

    @property
    def packet(self) -> NDArray[np.int32]: ...
    @property
    def index(self) -> NDArray[np.int32]: ...
    @property
    def start(self) -> NDArray[np.int64]: ...
    @property
    def length(self) -> NDArray[np.int32]: ...


@dataclass(frozen=True)
class Frames:
    """Frames in one buffer: frame f is ``data[offsets[f]:offsets[f+1]]``.

    data: uint8[bytes]; offsets: int64[f+1]; leaf, packet: int32[f], the origin of its messages;
    template: int32[f], the header it has; messages: int32[f], how many it carries; sequence:
    uint64[f], of its first message.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    leaf: NDArray[np.int32]
    template: NDArray[np.int32]
    packet: NDArray[np.int32]
    messages: NDArray[np.int32]
    sequence: NDArray[np.uint64]

    def __len__(self) -> int:
        return self.offsets.size - 1


def build_frames(
    templates: FrameTemplates,
    leaf: NDArray[np.int32],
    messages: MessagePositions,
    data: NDArray[np.uint8],
    sequence_base: NDArray[np.int64],
    sessions: NDArray[np.uint8],
    mtu: int,
) -> Frames:
    """Puts the messages into frames: those of one packet that share a leaf travel together.

    A group that would exceed ``mtu`` under the longest template of its leaf goes on in a new
    frame, so a message has one sequence number, whichever stack brings it. Frames stand in the
    order of packet, first message, template.

    Parameters
    ----------
    leaf: int32[m], leaf of each message; 0 and leaves without templates are not sent.
    messages: positions of the m messages in ``data``, packet after packet.
    data: uint8[], the packets.
    sequence_base: int64[n], Kafka offset of each packet; see
    :mod:`stackcast.udfs.messages.sequence`.
    sessions: uint8[n, 10], MoldUDP64 session of each packet, or uint8[1, 10] for all of them.
    mtu: bytes that a frame may have after its Ethernet header.

    Raises StackError ``MTU_TOO_SMALL`` (a message does not fit a frame of its own), ``BAD_MTU``,
    ``UNKNOWN_LEAF`` (there is none, or it is not worked out).
    """
    if not 0 < mtu <= MAX_MTU:
        raise StackError(
            "BAD_MTU", f"mtu {mtu} is not valid: it must be 1 to {MAX_MTU} bytes", mtu=mtu
        )
    leaf = np.ascontiguousarray(leaf, np.int32)
    fault, message, *columns = kernels.build(
        leaf,
        np.ascontiguousarray(messages.packet, np.int32),
        np.ascontiguousarray(messages.index, np.int32),
        np.ascontiguousarray(messages.start, np.int64),
        np.ascontiguousarray(messages.length, np.int32),
        read_only(data, np.uint8),
        read_only(sequence_base, np.int64),
        read_only(sessions, np.uint8),
        *templates.arrays,
        mtu,
        OFFSET_SHIFT,
        INDEX_BITS,
    )
    if fault == kernels.UNKNOWN:
        raise StackError(
            "UNKNOWN_LEAF",
            f"leaf {leaf[message]} has no templates, because filter and templates have different "
            "versions",
        )
    if fault == kernels.MISFIT:
        length = int(messages.length[message])
        needed = int(templates.longest[leaf[message]]) - kernels.ETHERNET + kernels.MOLDUDP64
        raise StackError(
            "MTU_TOO_SMALL",
            f"a frame of mtu {mtu} cannot hold a message of {length} bytes below the header stack "
            f"of leaf {leaf[message]}, which needs at least {needed + 2 + length} bytes",
            mtu=mtu,
            needed=needed + 2 + length,
        )
    return Frames(*columns)


def address_datagrams(
    templates: FrameTemplates,
    template: NDArray[np.int32],
    payload: NDArray[np.uint8],
    port: int,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Makes frames with one payload each, to another UDP port than the templates'.

    template: int32[f], of each frame. payload: uint8[f, n]. Returns bytes, uint8[], and borders,
    int64[f + 1].
    """
    start = read_only(templates.start, np.int64)
    template = read_only(template, np.int32)
    size = np.diff(start)[template] + payload.shape[1]
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(size)))
    out = np.empty(int(offsets[-1]), np.uint8)
    pool = read_only(templates.data, np.uint8)
    kernels.write_datagrams(pool, start, template, read_only(payload, np.uint8), port, offsets, out)
    return out, offsets
