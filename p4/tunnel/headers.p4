// Headers and metadata of a tunnel between switches (WERNECKE 3.4.1).
//
// When a frame crosses networks with other switches, the whole frame, including its Ethernet header, is the
// payload of a UDP datagram.

const bit<16> TUNNEL_PORT = 26403;  // UDP source and destination port
const bit<16> OUTER_BYTES = 28;    // IPv4 and UDP headers in front of a frame
const bit<8> TIME_TO_LIVE = 64;
const bit<3> DO_NOT_FRAGMENT = 2;
const bit<8> UDP = 17;
const bit<16> UDP_BYTES = 8;

header udp_h {
    bit<16> src;
    bit<16> dst;
    bit<16> length;
    bit<16> checksum;
}

// Headers before all others, and headers after `options`. The latter exist only in a frame without stack and options.
#define TUNNEL_HEADERS ethernet_h outer_ethernet; ipv4_h outer_ipv4; udp_h outer_udp;
#define DATAGRAM_HEADERS udp_h udp;

// inside: the frame inside the datagram must be recirculated. fresh: this is the first pass of a frame.
// length, announced: number of bytes and labels of the frame at the start of this pass. Egress cannot use the
// packet length from the target, because BMv2 counts only some of the headers that were added or removed.
#define TUNNEL_METADATA \
    @field_list(CARRIED) bit<1> inside; \
    bit<1> fresh; \
    bit<16> length; \
    bit<16> announced;

#define EMIT_TUNNEL \
    packet.emit(hdr.outer_ethernet); \
    packet.emit(hdr.outer_ipv4); \
    packet.emit(hdr.outer_udp);
