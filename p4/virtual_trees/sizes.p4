// Widths, sizes and numbers that switches, control plane and frames must agree on.

// Labels that one pass looks at: 1, 2, 4, 8, 16, 32 or 64. Every position has a table of all labels
// of the switch, so twice as many cost twice the entries and save at best half of the passes. In the
// lab's network (16 hosts, one broadcast tree) a frame of the default session takes 5.15 passes with
// 1 label a pass, 1.67 with 4, 1.02 with 8, and 1 with 16: beyond 8 the entries buy next to nothing.
// With stacks of 38 labels (128 hosts, 30 % of them) it is 41.1, 10.6, 5.56 and 2.98: there 16 may
// be worth its memory. docs/benchmarks.md has all of these.
#ifndef LABELS_A_PASS
#define LABELS_A_PASS 8
#endif

// Width of a label, 16 or 32: its type and an id of 14 or 30 bits. Frames of each width have an
// EtherType of their own, so that no switch takes labels for what they are not.
#ifndef LABEL_BITS
#define LABEL_BITS 16
#endif

#if LABEL_BITS == 32
const bit<16> STACK = 0x999A;
const bit<8> LABEL_BITS_SHIFT = 5;  // times LABEL_BITS
#elif LABEL_BITS == 16
const bit<16> STACK = 0x9999;
const bit<8> LABEL_BITS_SHIFT = 4;
#else
#error "LABEL_BITS is 16 or 32"
#endif
#define TIMES_LABEL_BYTES(NUMBER) ((bit<32>) (NUMBER) << LABEL_BYTES_SHIFT)
const bit<8> LABEL_BYTES_SHIFT = LABEL_BITS_SHIFT - 3;  // times the bytes of a label

const bit<16> MAX_LABELS = 64;
const int LABELS_BITS = 64 * LABEL_BITS;  // of as many labels

// Entries of a table.
const int LABELS = 17408;  // 16,383 trees, a hop and a stop of each port, however wide labels are
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
const reason_t TYPE_00 = 5;         // a label of no type
const reason_t UNKNOWN_LABELS = 6;  // no label means anything to this switch
const reason_t NO_PORT = 7;         // labels are known, but leave no port to send to
const reason_t NO_ROUTE = 8;        // no prefix holds the IPv4 destination
const reason_t TTL_OVER = 9;        // the IPv4 time to live ends here
const reason_t NOT_IPV4 = 10;       // neither a stack nor IPv4
const reason_t BAD_CHECKSUM = 11;   // of the IPv4 header
const reason_t UNKNOWN_PORT = 12;   // nothing is known to be behind the port that it came in by
const reason_t NO_PUBLISHER = 13;   // a stack from a host that is no publisher
const reason_t FORGED_ADDRESS = 14; // plain IPv4 from another address than the host's
const reason_t LINK_LOCAL = 15;     // control traffic between neighbors (link_local.p4)
const bit<32> REASONS = 16;
