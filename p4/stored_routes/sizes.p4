// Widths, sizes and numbers that switches, the control plane and frames have in common.

// Number of labels that one pass examines: 1, 2, 4, 8, 16, 32 or 64. Every position has its own table.
#ifndef LABELS_A_PASS
#define LABELS_A_PASS 8
#endif

// Encoding of labels: 1 destination, 2 stored tree, 3 hybrid (a type and an id of 14 bits), 4 port bitmaps
// (a destination, a switch, or ports of the preceding switch). Each encoding has its own EtherType, so that
// no switch can misinterpret labels.
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
// First two bits of a label. For a host, the first bit is 0 and the second bit belongs to the id.
const bit<2> PORTS_OF = 3;
const bit<8> BLOCK = 11;  // number of ports in a label
#else
#error "ENCODING is 1 to 4"
#endif

#define LABEL_BITS 16
const bit<8> LABEL_BITS_SHIFT = 4;   // shift that multiplies by LABEL_BITS
#define TIMES_LABEL_BYTES(NUMBER) ((bit<32>) (NUMBER) << LABEL_BYTES_SHIFT)
const bit<8> LABEL_BYTES_SHIFT = 1;  // shift that multiplies by the bytes of a label

#if ENCODING == 4
const bit<16> MAX_LABELS = 512;
const int LABELS_BITS = 512 * LABEL_BITS;  // maximum bits of the labels of a stack
#else
const bit<16> MAX_LABELS = 64;
const int LABELS_BITS = 64 * LABEL_BITS;
#endif

// Sizes of tables.
#if ENCODING == 3
const int LABELS = 16896;  // 16,383 trees, one hop per port, and a root
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

// The multicast group for some of the ports in a subset of 8 ports has the number (subset << 8) | mask. FAN_OUT
// makes one copy per subset, with instance subset + 1.
const bit<16> FAN_OUT = 0x1000;

// Egress port of a frame that passes through egress only to be recirculated.
const port_t NOWHERE = 0;

const bit<16> IPV4 = 0x0800;
const bit<32> ETHERNET_BYTES = 14;
const bit<32> COUNT_BYTES = 2;
const bit<32> IPV4_BYTES = 20;
const bit<4> WORDS = 5;         // words of 4 bytes of an IPv4 header without options
const int OPTIONS_BITS = 320;   // maximum
const bit<32> SHORTEST_FRAME = 60;  // Ethernet pads frames to this length

// standard_metadata.instance_type
const bit<32> RECIRCULATED = 4;

// Metadata that is preserved when egress recirculates a frame to the parser.
#define CARRIED 1

// Reasons for dropping a frame, which are the indexes of the counter.
typedef bit<8> reason_t;
const reason_t NOT_DROPPED = 0;
const reason_t CUT_SHORT = 1;       // the frame ends within its headers or its datagram
const reason_t EMPTY_STACK = 2;     // num_entries is 0
const reason_t TOO_MANY_LABELS = 3; // num_entries is greater than MAX_LABELS
const reason_t BAD_COUNT = 4;       // num_entries labels are not followed by an IPv4 datagram that fills the frame
const reason_t NO_LABEL_LEFT = 5;   // no label of a copy is needed behind its port
const reason_t UNKNOWN_LABELS = 6;  // no label selects a port of this switch
const reason_t NO_PORT = 7;         // only the ingress port is selected
const reason_t NO_ROUTE = 8;        // no prefix matches the IPv4 destination
const reason_t TTL_OVER = 9;        // the time to live of the IPv4 header has expired
const reason_t NOT_IPV4 = 10;       // the frame contains neither a stack of this encoding nor IPv4
const reason_t BAD_CHECKSUM = 11;   // the checksum of the IPv4 header is wrong
const reason_t UNKNOWN_PORT = 12;   // the tables have no neighbor at the ingress port
const reason_t NO_PUBLISHER = 13;   // a stack from a host that is not a publisher
const reason_t FORGED_ADDRESS = 14; // plain IPv4 from an address other than that of the host
const reason_t LINK_LOCAL = 15;     // control traffic between neighbors (link_local.p4)
const bit<32> REASONS = 16;
