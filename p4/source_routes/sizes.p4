// Widths, sizes and numbers that switches, the control plane and frames have in common.

// Number of labels that one pass examines: 1, 2, 4, 8 or 16. Every position has its own table.
#ifndef LABELS_A_PASS
#define LABELS_A_PASS 8
#endif

// Encoding of labels: 1 port, 2 bitmask, 3 mc_group, 4 mixed, 5 hops, 6 port_reactive. Each encoding has
// its own EtherType, so that no switch can misinterpret labels. A label consists of the id of a switch or
// a directed link, and a value that depends on the encoding. With REACTIVE, copies keep all labels
// that follow their own labels, and the next switches remove the labels that they do not need (WERNECKE 3.3.1).
// With WIDE, labels have 32 bits.
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
const bit<8> SUBSETS = 64;  // each of 8 ports
#endif

const bit<16> MAX_LABELS = 64;
const int LABELS_BITS = 64 * (ID_BITS + TAG_BITS + VALUE_BITS);  // maximum bits of the labels of a stack

// Sizes of tables.
const int LABELS = 512;  // one for the switch, or one directed link per port
const int HOST_PORTS = 512;
const int SOURCES = 512;
const int TUNNELS = 512;
const int ROUTES = 4096;

typedef bit<9> port_t;
#define PORTS 512
typedef bit<PORTS> ports_t;  // bit p - 1 is port p, from 1 to 511

// The multicast group for some of the ports in a subset of 8 ports has the number (subset << 8) | mask. FAN_OUT
// makes one copy per subset, with instance subset + 1. SPLIT makes one copy for the ports of this run of own
// labels, and one copy with the remaining labels.
const bit<16> FAN_OUT = 0x1000;
const bit<16> SPLIT = 0x1100;
const bit<16> THIS_RUN = 65;
const bit<16> GOING_ON = 66;

// Egress port of a frame that passes through egress only to be recirculated.
const port_t NOWHERE = 0;

// Kinds of labels that have been examined so far in the frame.
const bit<2> FOREIGN = 0;  // only labels of other switches
const bit<2> OWN = 1;      // also a run of own labels
const bit<2> KEPT = 2;     // also labels that the copies of the run keep (with REACTIVE: have kept)

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
const reason_t NO_LABEL_LEFT = 5;   // own labels do not lead to a host, and no labels remain for other switches
const reason_t UNKNOWN_LABELS = 6;  // no label is for this switch
const reason_t NO_PORT = 7;         // own labels select no port, or only the ingress port
const reason_t NO_ROUTE = 8;        // no prefix matches the IPv4 destination
const reason_t TTL_OVER = 9;        // the time to live of the IPv4 header has expired
const reason_t NOT_IPV4 = 10;       // the frame contains neither a stack of this encoding nor IPv4
const reason_t BAD_CHECKSUM = 11;   // the checksum of the IPv4 header is wrong
const reason_t UNKNOWN_PORT = 12;   // the tables have no neighbor at the ingress port
const reason_t NO_PUBLISHER = 13;   // a stack from a host that is not a publisher
const reason_t FORGED_ADDRESS = 14; // plain IPv4 from an address other than that of the host
const reason_t LINK_LOCAL = 15;     // control traffic between neighbors (link_local.p4)
const bit<32> REASONS = 16;
