// Widths, sizes and numbers that switches, control plane and frames must agree on.

// Labels that one pass looks at: 1, 2, 4, 8 or 16; every position has a table of its own.
#ifndef LABELS_A_PASS
#define LABELS_A_PASS 8
#endif

// What a label is: 1 port, 2 bitmask, 3 mc_group, 4 mixed, 5 hops, 6 port_reactive. Frames of each
// encoding have an EtherType of their own, so that no switch takes labels for what they are not. A
// label has an id, that of a switch or of a directed link, and what the encoding says of it. With
// REACTIVE, copies take along all labels behind their own, and the next switches take off what is of
// no use to them (WERNECKE 3.3.1). With WIDE, labels have 32 bits.
#ifndef ENCODING
#define ENCODING 1
#endif

#ifdef WIDE
#if ENCODING == 1
const bit<16> STACK = 0x99B0;
#elif ENCODING == 3
const bit<16> STACK = 0x99B2;
#elif ENCODING == 5
const bit<16> STACK = 0x99B8;
#elif ENCODING == 6
const bit<16> STACK = 0x99B4;
#define REACTIVE
#else
#error "WIDE is for the encodings 1, 3, 5 and 6"
#endif
#if ENCODING == 5
#define ID_BITS 32
#define VALUE_BITS 0
#else
#define ID_BITS 16
#define VALUE_BITS 16
#endif
#elif ENCODING == 1
const bit<16> STACK = 0x99A0;
#define ID_BITS 8
#define VALUE_BITS 8
#elif ENCODING == 2
const bit<16> STACK = 0x99A1;
#define ID_BITS 8
#define VALUE_BITS 16
#elif ENCODING == 3
const bit<16> STACK = 0x99A2;
#define ID_BITS 8
#define VALUE_BITS 16
#elif ENCODING == 4
const bit<16> STACK = 0x99A3;
#define ID_BITS 8
#define TAG_BITS 8
#define VALUE_BITS 16
#elif ENCODING == 5
const bit<16> STACK = 0x99A8;
#define ID_BITS 16
#define VALUE_BITS 0
#elif ENCODING == 6
const bit<16> STACK = 0x99A4;
#define ID_BITS 8
#define VALUE_BITS 8
#define REACTIVE
#else
#error "ENCODING is 1 to 6"
#endif
#ifndef TAG_BITS
#define TAG_BITS 0
#endif

#if ID_BITS + TAG_BITS + VALUE_BITS == 16
#define TIMES_LABEL_BYTES(NUMBER) ((bit<32>) (NUMBER) << 1)
#elif ID_BITS + TAG_BITS + VALUE_BITS == 24
#define TIMES_LABEL_BYTES(NUMBER) (((bit<32>) (NUMBER) << 1) + (bit<32>) (NUMBER))
#else
#define TIMES_LABEL_BYTES(NUMBER) ((bit<32>) (NUMBER) << 2)
#endif

#if ENCODING == 4
// Strategies.
const bit<8> PORT = 1;
const bit<8> BITMASK = 2;
const bit<8> MC_GROUP = 3;
#endif
#if ENCODING == 3 || ENCODING == 4
const bit<8> SUBSETS = 64;  // of 8 ports each
#endif

const bit<16> MAX_LABELS = 64;
const int LABELS_BITS = 64 * (ID_BITS + TAG_BITS + VALUE_BITS);  // of as many labels

// Entries of a table.
const int LABELS = 512;  // a switch, or a directed link of each port
const int HOST_PORTS = 512;
const int SOURCES = 512;
const int TUNNELS = 512;
const int ROUTES = 4096;

typedef bit<9> port_t;
#define PORTS 512
typedef bit<PORTS> ports_t;  // bit p - 1 is port p, from 1 to 511

// A multicast group is a subset of 8 ports, (subset << 8) | mask of its ports; or a copy for each
// subset, whose replicas are of instance subset + 1; or SPLIT, one copy for the ports of this run of
// own labels, and one that goes on.
const bit<16> FAN_OUT = 0x1000;
const bit<16> SPLIT = 0x1100;
const bit<16> THIS_RUN = 65;
const bit<16> GOING_ON = 66;

// Where a frame is put that only passes egress to go round.
const port_t NOWHERE = 0;

// What a frame's labels have been so far.
const bit<2> FOREIGN = 0;  // of other switches
const bit<2> OWN = 1;      // a run of own labels
const bit<2> KEPT = 2;     // and behind it, what its copies take along, or with REACTIVE have taken

const bit<16> IPV4 = 0x0800;
const bit<32> ETHERNET_BYTES = 14;
const bit<32> COUNT_BYTES = 2;
const bit<32> IPV4_BYTES = 20;
const bit<4> WORDS = 5;         // 4 bytes each, of an IPv4 header without options
const int OPTIONS_BITS = 320;   // at most
const bit<32> SHORTEST_FRAME = 60;  // up to this, Ethernet fills frames up

// standard_metadata.instance_type
const bit<32> RECIRCULATED = 4;

// Metadata that a frame keeps on its way from egress back to the parser.
#define CARRIED 1

// Why a frame was dropped: index of the counter.
typedef bit<8> reason_t;
const reason_t NOT_DROPPED = 0;
const reason_t CUT_SHORT = 1;       // it ends within its headers, or before its datagram does
const reason_t EMPTY_STACK = 2;     // num_entries is 0
const reason_t TOO_MANY_LABELS = 3; // num_entries is above MAX_LABELS
const reason_t BAD_COUNT = 4;       // no IPv4 datagram that fills the frame is where num_entries says
const reason_t NO_LABEL_LEFT = 5;   // own labels lead to no host, and none is left for a switch
const reason_t UNKNOWN_LABELS = 6;  // no label is this switch's
const reason_t NO_PORT = 7;         // own labels leave no port to send to
const reason_t NO_ROUTE = 8;        // no prefix holds the IPv4 destination
const reason_t TTL_OVER = 9;        // the IPv4 time to live ends here
const reason_t NOT_IPV4 = 10;       // neither a stack of this encoding nor IPv4
const reason_t BAD_CHECKSUM = 11;   // of the IPv4 header
const reason_t UNKNOWN_PORT = 12;   // nothing is known to be behind the port that it came in by
const reason_t NO_PUBLISHER = 13;   // a stack from a host that is no publisher
const reason_t FORGED_ADDRESS = 14; // plain IPv4 from another address than the host's
const reason_t LINK_LOCAL = 15;     // control traffic between neighbors (link_local.p4)
const bit<32> REASONS = 16;
