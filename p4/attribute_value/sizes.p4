// Widths, sizes and numbers that switches, the control plane and frames have in common.

// k and n_max (KUNDEL IV). They can be set with options of p4c: -DID_BITS=16 -DATTRIBUTES=64. Ids are 0 to
// ATTRIBUTES - 1; attributes.p4 lists them for 8, 16, 32 and 64 attributes.
#ifndef ID_BITS
#define ID_BITS 8
#endif
#ifndef ATTRIBUTES
#define ATTRIBUTES 32
#endif

typedef bit<ID_BITS> id_t;
typedef bit<32> raw_t;    // raw value of an attribute
typedef bit<64> value_t;  // value of a cell
typedef bit<48> start_t;  // start of the window of a cell, in microseconds that wrap around
typedef bit<ATTRIBUTES> bitmask_t;  // bit i is attribute i, so attribute 0 is the lowest bit
typedef bit<9> port_t;
#define PORTS 64
typedef bit<PORTS> ports_t;  // bit p - 1 is port p
typedef bit<512> terms_t;  // terms of bit vectors

// The multicast group for some of the ports in a subset of 8 ports has the number (subset << 8) | mask. FAN_OUT
// makes one copy per subset, with instance subset + 1.
const bit<16> FAN_OUT = 0x1000;

// Egress port of an event that passes through egress only to be recirculated.
const port_t NOWHERE = 0;

// Size of the registers of cells. A cell has one element of each register.
const bit<32> CELLS = 1024;
const bit<32> NO_OPERAND = 0xffffffff;  // the cell counts updates

// standard_metadata.instance_type
const bit<32> RECIRCULATED = 4;

// Metadata that is preserved when egress recirculates an event to the parser.
#define CARRIED 1

// EtherType of events. The destination selects the encoding: BITMASKS is the group address of events with a
// bitmask, and events to all other addresses have id pairs (KUNDEL, Listing 1).
const bit<16> EVENT = 0x9001;
const bit<48> BITMASKS = 0x035343000002;

// Sizes of tables.
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
const bit<4> WORDS = 5;        // words of 4 bytes of an IPv4 header without options
const int OPTIONS_BITS = 320;  // maximum

// Reasons for dropping a frame, which are the indexes of the counter.
typedef bit<8> reason_t;
const reason_t NOT_DROPPED = 0;
const reason_t CUT_SHORT = 1;          // the frame ends before its attributes or its datagram
const reason_t EMPTY_EVENT = 2;        // the bitmask is 0
const reason_t UNKNOWN_ATTRIBUTE = 3;  // an id is not less than ATTRIBUTES
const reason_t ID_TWICE = 4;           // an id is repeated
const reason_t NO_RECEIVER = 5;        // no rule matches the event
const reason_t NO_ROUTE = 6;           // no row matches the IPv4 or Ethernet destination address
const reason_t TTL_OVER = 7;           // the time to live of the IPv4 header has expired
const reason_t NOT_IPV4 = 8;           // the frame is not an event, IPv4, ARP or IPv6
const reason_t BAD_CHECKSUM = 9;       // the checksum of the IPv4 header is wrong
const reason_t NO_PORT = 10;           // only the ingress port has matching rules
const reason_t UNKNOWN_PORT = 11;      // the tables have no neighbor at the ingress port
const reason_t NO_PUBLISHER = 12;      // an event from a host that is not a publisher
const reason_t FORGED_ADDRESS = 13;    // IPv4 from an address other than that of the host
const reason_t LINK_LOCAL = 14;        // control traffic between neighbors (link_local.p4)
const bit<32> REASONS = 15;
