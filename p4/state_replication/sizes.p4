// Widths, sizes and numbers that switches, control plane and frames must agree on.

// States that the registers have room for, numbered from 1 (STARE IV: 2,048).
#ifndef STATES
#define STATES 2048
#endif

// A generation has 2^PERIOD_BITS periods. In a period, a link gets one register of a state.
const bit<8> PERIOD_BITS = 5;

// Entries of a table.
const int STATE_ROWS = 65536;
const int TREES = 1;
const int SOURCES = 64;
const int ROUTES = 4096;

typedef bit<9> port_t;
#define PORTS 64
typedef bit<PORTS> ports_t;  // bit p - 1 is port p

// A multicast group is a subset of 8 ports, (subset << 8) | mask of its ports; or a copy for each
// subset, whose replicas are of instance subset + 1.
const bit<16> FAN_OUT = 0x1000;

// The port of the switch's own controller, of simple_switch_grpc's --cpu-port.
const port_t CPU_PORT = 510;

// A message of a state: its address is protocol 8 | kind 2 | state 22 (STARE III-A, Table I).
const bit<8> PROTO_ID = 239;
const bit<16> STATES_PORT = 65432;
const bit<2> PUBLISH = 0b00;
const bit<2> ACK = 0b01;
const bit<2> REMOVE = 0b10;
const bit<2> REGISTER = 0b11;
const bit<16> UDP_BYTES = 8;
const bit<16> HEADER_BYTES = 8;  // behind the UDP header, whatever the kind

// Who acknowledges: a node without an address (RFC 7600), and a MAC address that nobody has.
const bit<32> ACKNOWLEDGER = 0xC0000008;
const bit<48> ACKNOWLEDGER_MAC = 0x0200C0000008;

const bit<16> IPV4 = 0x0800;
const bit<8> UDP = 17;
const bit<32> ETHERNET_BYTES = 14;
const bit<4> WORDS = 5;         // 4 bytes each, of an IPv4 header without options
const int OPTIONS_BITS = 320;   // at most

// standard_metadata.instance_type
const bit<32> RECIRCULATED = 4;

// Metadata that a frame keeps on its way from egress back to the parser.
#define CARRIED 1

// Why a frame was dropped: index of the counter.
typedef bit<8> reason_t;
const reason_t NOT_DROPPED = 0;
const reason_t CUT_SHORT = 1;       // it ends within its headers, or lengths contradict each other
const reason_t UNKNOWN_STATE = 2;   // state 0, or one that the registers have no room for
const reason_t NO_SUBSCRIBER = 3;   // an update that nobody else subscribed to
const reason_t NOT_ON_TREE = 4;     // from a switch by a link that is not on the tree
const reason_t ACK_FROM_HOST = 5;   // only switches acknowledge
const reason_t STRAY_ACK = 6;       // from a switch, and none is waited for
const reason_t NO_PORT = 7;         // no port is left to send to
const reason_t NO_ROUTE = 8;        // no prefix holds the IPv4 destination
const reason_t TTL_OVER = 9;        // the IPv4 time to live ends here
const reason_t NOT_IPV4 = 10;       // all that is something else
const reason_t BAD_CHECKSUM = 11;   // of the IPv4 header
const reason_t UNKNOWN_PORT = 12;   // nothing is known to be behind the port that it came in by
const reason_t NO_PUBLISHER = 13;   // an update from a host that is no publisher
const reason_t FORGED_ADDRESS = 14; // IPv4 from another address than the host's
const reason_t LINK_LOCAL = 15;     // control traffic between neighbors (link_local.p4)
const bit<32> REASONS = 16;
