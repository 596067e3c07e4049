// Widths, sizes and numbers that switches, the control plane and frames have in common.

// Number of labels that one pass examines: 1, 2, 4, 8, 16, 32 or 64. Every position has a table with all
// labels of the switch, so twice as many labels need twice as many entries, and save at most half of the passes.
// In the network of the lab (16 hosts, one broadcast tree), a frame of the default session takes 5.15 passes
// with 1 label per pass, 1.67 with 4, 1.02 with 8, and 1 with 16, so more than 8 labels hardly help. With stacks of
// 38 labels (30 % of 128 hosts), it takes 41.1, 10.6, 5.56 and 2.98 passes, so 16 labels may be worth the memory.
// See docs/results/overview.md for all measurements.
#ifndef LABELS_A_PASS
#define LABELS_A_PASS 8
#endif

// Width of a label, 16 or 32 bits: a type and an id of 14 or 30 bits. Each width has its own EtherType, so
// that no switch can misinterpret labels.
#ifndef LABEL_BITS
#define LABEL_BITS 16
#endif

#if LABEL_BITS == 32
const bit<16> STACK = 0x999A;
const bit<8> LABEL_BITS_SHIFT = 5;  // shift that multiplies by LABEL_BITS
#elif LABEL_BITS == 16
const bit<16> STACK = 0x9999;
const bit<8> LABEL_BITS_SHIFT = 4;
#else
#error "LABEL_BITS is 16 or 32"
#endif
#define TIMES_LABEL_BYTES(NUMBER) ((bit<32>) (NUMBER) << LABEL_BYTES_SHIFT)
const bit<8> LABEL_BYTES_SHIFT = LABEL_BITS_SHIFT - 3;  // shift that multiplies by the bytes of a label

const bit<16> MAX_LABELS = 64;
const int LABELS_BITS = 64 * LABEL_BITS;  // maximum bits of the labels of a stack

// Sizes of tables.
const int LABELS = 17408;  // 16,383 trees, and one hop and one stop per port, for both label widths
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
const reason_t TYPE_00 = 5;         // a label has type 00
const reason_t UNKNOWN_LABELS = 6;  // no label is for this switch
const reason_t NO_PORT = 7;         // after applying the labels, no port remains to send to
const reason_t NO_ROUTE = 8;        // no prefix matches the IPv4 destination
const reason_t TTL_OVER = 9;        // the time to live of the IPv4 header has expired
const reason_t NOT_IPV4 = 10;       // the frame contains neither a stack nor IPv4
const reason_t BAD_CHECKSUM = 11;   // the checksum of the IPv4 header is wrong
const reason_t UNKNOWN_PORT = 12;   // the tables have no neighbor at the ingress port
const reason_t NO_PUBLISHER = 13;   // a stack from a host that is not a publisher
const reason_t FORGED_ADDRESS = 14; // plain IPv4 from an address other than that of the host
const reason_t LINK_LOCAL = 15;     // control traffic between neighbors (link_local.p4)
const bit<32> REASONS = 16;
