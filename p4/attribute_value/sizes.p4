// Widths, sizes and numbers that switches, control plane and frames must agree on.

// k and n_max (KUNDEL IV), which p4c may be told others of: -DID_BITS=16 -DATTRIBUTES=64. Ids are 0
// to ATTRIBUTES - 1; attributes.p4 spells them out, for 8, 16, 32 and 64.
#ifndef ID_BITS
#define ID_BITS 8
#endif
#ifndef ATTRIBUTES
#define ATTRIBUTES 32
#endif

typedef bit<ID_BITS> id_t;
typedef bit<32> raw_t;    // a value
typedef bit<64> value_t;  // of a cell
typedef bit<48> start_t;  // of a cell's window, microseconds that count around
typedef bit<ATTRIBUTES> bitmask_t;  // bit i is attribute i, so attribute 0 is the last bit
typedef bit<9> port_t;
#define PORTS 64
typedef bit<PORTS> ports_t;  // bit p - 1 is port p
typedef bit<512> terms_t;  // of bit vectors

// A multicast group is a subset of 8 ports, (subset << 8) | mask of its ports; or a copy for each
// subset, whose replicas are of instance subset + 1.
const bit<16> FAN_OUT = 0x1000;

// Where an event is put that only passes egress to go round.
const port_t NOWHERE = 0;

// Registers of cells; a cell is in one of each.
const bit<32> CELLS = 1024;
const bit<32> NO_OPERAND = 0xffffffff;  // updates are counted

// standard_metadata.instance_type
const bit<32> RECIRCULATED = 4;

// Metadata that an event keeps on its way from egress back to the parser.
#define CARRIED 1

// EtherType of events. Which encoding follows is told by the destination: BITMASKS is the group
// address of those with a bitmask, all others are read as id pairs (KUNDEL, Listing 1).
const bit<16> EVENT = 0x9001;
const bit<48> BITMASKS = 0x035343000002;

// Entries of a table.
const int PASSES = 64;
const int EVENTS = 16384;
const int VALUES = 16384;
const int STATES = 16384;
const int ROUTES = 4096;
const int SOURCES = 64;

const bit<16> IPV4 = 0x0800;
const bit<16> ARP = 0x0806;
const bit<16> IPV6 = 0x86dd;
const bit<32> ETHERNET_BYTES = 14;
const bit<4> WORDS = 5;        // 4 bytes each, of an IPv4 header without options
const int OPTIONS_BITS = 320;  // at most

// Why a frame was dropped: index of the counter.
typedef bit<8> reason_t;
const reason_t NOT_DROPPED = 0;
const reason_t CUT_SHORT = 1;          // it ends before its attributes or its datagram do
const reason_t EMPTY_EVENT = 2;        // its bitmask is 0
const reason_t UNKNOWN_ATTRIBUTE = 3;  // an id of ATTRIBUTES or more
const reason_t ID_TWICE = 4;           // an id was there before
const reason_t NO_RECEIVER = 5;        // nobody asked for the event
const reason_t NO_ROUTE = 6;           // no row holds the IPv4 or Ethernet destination
const reason_t TTL_OVER = 7;           // the IPv4 time to live ends here
const reason_t NOT_IPV4 = 8;           // none of an event, IPv4, ARP and IPv6
const reason_t BAD_CHECKSUM = 9;       // of the IPv4 header
const reason_t NO_PORT = 10;           // only the port that the event came in by asked for it
const reason_t UNKNOWN_PORT = 11;      // nothing is known to be behind the port that it came in by
const reason_t NO_PUBLISHER = 12;      // an event from a host that is no publisher
const reason_t FORGED_ADDRESS = 13;    // IPv4 from another address than the host's
const reason_t LINK_LOCAL = 14;        // control traffic between neighbors (link_local.p4)
const bit<32> REASONS = 15;
