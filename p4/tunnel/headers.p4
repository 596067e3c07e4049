// Headers of a tunnel between switches, and what is known of a frame in one (WERNECKE 3.4.1).
//
// A frame that crosses networks of other switches is the payload of a UDP datagram, from its
// Ethernet header on.

const bit<16> TUNNEL_PORT = 26403;  // of UDP, both ways
const bit<16> OUTER_BYTES = 28;    // of IPv4 and UDP in front of a frame
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

// Before all others, and behind `options`: of a frame without a stack, after IPv4 without options.
#define TUNNEL_HEADERS ethernet_h outer_ethernet; ipv4_h outer_ipv4; udp_h outer_udp;
#define DATAGRAM_HEADERS udp_h udp;

// inside: the frame that was in a datagram is to come by. fresh: this pass is the first of a frame.
// length, announced: bytes of the frame, and its labels, as this pass began. What a target says of
// the length behind ingress differs: BMv2 counts headers that came and went, and not all of them.
#define TUNNEL_METADATA \
    @field_list(CARRIED) bit<1> inside; \
    bit<1> fresh; \
    bit<16> length; \
    bit<16> announced;

#define EMIT_TUNNEL \
    packet.emit(hdr.outer_ethernet); \
    packet.emit(hdr.outer_ipv4); \
    packet.emit(hdr.outer_udp);
