// Widths, sizes and numbers that switches, control plane and frames must agree on.

// Labels that one pass looks at: 1, 2, 4, 8, 16, 32 or 64; every position has a table of its own.
#ifndef LABELS_A_PASS
#define LABELS_A_PASS 8
#endif

// What a label is: 1 a destination, 2 a stored tree, 3 hybrid: its type and an id of 14 bits, 4 port
// bitmaps: a destination, a switch, or ports of the switch before. Frames of each encoding have an
// EtherType of their own, so that no switch takes labels for what they are not.
#ifndef ENCODING
#define ENCODING 3
#endif

#if ENCODING == 1
const bit<16> STACK = 0x99A9;
#elif ENCODING == 2
const bit<16> STACK = 0x99AA;
#elif ENCODING == 3
const bit<16> STACK = 0x99AB;
// Types of labels.
const bit<2> ROOT = 0;
const bit<2> TREE = 1;
const bit<2> HOP = 2;
#elif ENCODING == 4
const bit<16> STACK = 0x99AC;
// The first two bits of a label; a host has 0 in the first.
const bit<2> PORTS_OF = 3;
const bit<8> BLOCK = 11;  // ports that a label names
#else
#error "ENCODING is 1 to 4"
#endif

#define LABEL_BITS 16
const bit<8> LABEL_BITS_SHIFT = 4;   // times LABEL_BITS
#define TIMES_LABEL_BYTES(NUMBER) ((bit<32>) (NUMBER) << LABEL_BYTES_SHIFT)
const bit<8> LABEL_BYTES_SHIFT = 1;  // times the bytes of a label

#if ENCODING == 4
const bit<16> MAX_LABELS = 512;
const int LABELS_BITS = 512 * LABEL_BITS;  // of as many labels
#else
const bit<16> MAX_LABELS = 64;
const int LABELS_BITS = 64 * LABEL_BITS;
#endif

// Entries of a table.
#if ENCODING == 3
const int LABELS = 16896;  // 16,383 trees, a hop of each port, a root
#else
const int LABELS = 65535;
#endif
const int HOST_PORTS = 512;
const int SOURCES = 512;
const int TUNNELS = 512;
const int ROUTES = 4096;

typedef bit<9> port_t;
#define PORTS 512
typedef bit<PORTS> ports_t;  // bit p - 1 is port p, from 1 to 511

// A multicast group is a subset of 8 ports, (subset << 8) | mask of its ports; or a copy for each
// subset, whose replicas are of instance subset + 1.
const bit<16> FAN_OUT = 0x1000;

// Where a frame is put that only passes egress to go round.
const port_t NOWHERE = 0;

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
const reason_t NO_LABEL_LEFT = 5;   // of a copy: none of its labels leads on by its port
const reason_t UNKNOWN_LABELS = 6;  // no label chooses a port of this switch
const reason_t NO_PORT = 7;         // only the one that the frame came in by is chosen
const reason_t NO_ROUTE = 8;        // no prefix holds the IPv4 destination
const reason_t TTL_OVER = 9;        // the IPv4 time to live ends here
const reason_t NOT_IPV4 = 10;       // neither a stack of this encoding nor IPv4
const reason_t BAD_CHECKSUM = 11;   // of the IPv4 header
const reason_t UNKNOWN_PORT = 12;   // nothing is known to be behind the port that it came in by
const reason_t NO_PUBLISHER = 13;   // a stack from a host that is no publisher
const reason_t FORGED_ADDRESS = 14; // plain IPv4 from another address than the host's
const reason_t LINK_LOCAL = 15;     // control traffic between neighbors (link_local.p4)
const bit<32> REASONS = 16;
