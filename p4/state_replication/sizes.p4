// Widths, sizes and numbers that switches, the control plane and frames have in common.

// Number of states in the registers, starting at 1 (STARE IV: 2,048).
#ifndef STATES
#define STATES 2048
#endif

// A generation has 2^PERIOD_BITS periods. In each period, a link is sent one register message per state.
const bit<8> PERIOD_BITS = 5;

// Sizes of tables.
const int STATE_ROWS = 65536;
const int TREES = 1;
const int SOURCES = 64;
const int ROUTES = 4096;

typedef bit<9> port_t;
#define PORTS 64
typedef bit<PORTS> ports_t;  // bit p - 1 is port p

// The multicast group for some of the ports in a subset of 8 ports has the number (subset << 8) | mask. FAN_OUT
// makes one copy per subset, with instance subset + 1.
const bit<16> FAN_OUT = 0x1000;

// Port of the controller of the switch (--cpu-port of simple_switch_grpc).
const port_t CPU_PORT = 510;

// The address of a message of a state consists of protocol 8 | kind 2 | state 22 bits (STARE III-A, Table I).
const bit<8> PROTO_ID = 239;
const bit<16> STATES_PORT = 65432;
const bit<2> PUBLISH = 0b00;
const bit<2> ACK = 0b01;
const bit<2> REMOVE = 0b10;
const bit<2> REGISTER = 0b11;
const bit<16> UDP_BYTES = 8;
const bit<16> HEADER_BYTES = 8;  // bytes after the UDP header that all kinds of messages have

// Source of acks: the address of a node without an address (RFC 7600), and an unused MAC address.
const bit<32> ACKNOWLEDGER = 0xC0000008;
const bit<48> ACKNOWLEDGER_MAC = 0x0200C0000008;

const bit<16> IPV4 = 0x0800;
const bit<8> UDP = 17;
const bit<32> ETHERNET_BYTES = 14;
const bit<4> WORDS = 5;         // words of 4 bytes of an IPv4 header without options
const int OPTIONS_BITS = 320;   // maximum

// standard_metadata.instance_type
const bit<32> RECIRCULATED = 4;

// Metadata that is preserved when egress recirculates a frame to the parser.
#define CARRIED 1

// Reasons for dropping a frame, which are the indexes of the counter.
typedef bit<8> reason_t;
const reason_t NOT_DROPPED = 0;
const reason_t CUT_SHORT = 1;       // the frame ends within its headers, or its lengths contradict each other
const reason_t UNKNOWN_STATE = 2;   // the number of the state is 0 or too large for the registers
const reason_t NO_SUBSCRIBER = 3;   // no other host has subscribed to the state
const reason_t NOT_ON_TREE = 4;     // a switch sent the message over a link that is not part of the tree
const reason_t ACK_FROM_HOST = 5;   // a host sent an ack, but only switches may send acks
const reason_t STRAY_ACK = 6;       // a switch sent an ack that was not expected
const reason_t NO_PORT = 7;         // no port remains that the message could be sent to
const reason_t NO_ROUTE = 8;        // no prefix matches the IPv4 destination
const reason_t TTL_OVER = 9;        // the time to live of the IPv4 header has expired
const reason_t NOT_IPV4 = 10;       // the frame does not contain IPv4
const reason_t BAD_CHECKSUM = 11;   // the checksum of the IPv4 header is wrong
const reason_t UNKNOWN_PORT = 12;   // the tables have no neighbor at the ingress port
const reason_t NO_PUBLISHER = 13;   // an update from a host that is not a publisher
const reason_t FORGED_ADDRESS = 14; // IPv4 from an address other than that of the host
const reason_t LINK_LOCAL = 15;     // control traffic between neighbors (link_local.p4)
const bit<32> REASONS = 16;
