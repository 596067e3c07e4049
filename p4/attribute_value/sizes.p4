// Widths, sizes and numbers that switches, control plane and frames must agree on.

// n_max (KUNDEL IV): ids are 0 to 31. attributes.p4 spells them out.
#define ATTRIBUTES 32

typedef bit<8> id_t;
typedef bit<32> value_t;
typedef bit<ATTRIBUTES> bitmask_t;  // bit i is attribute i, so attribute 0 is the last bit
typedef bit<9> port_t;
typedef bit<16> group_t;  // 1 to 0x7fff, as BMv2 has it; its replicas are the ports themselves

const group_t NO_GROUP = 0;

// EtherType of events. Which encoding follows is told by the destination: BITMASKS is the group
// address of those with a bitmask, all others are read as id pairs (KUNDEL, Listing 1).
const bit<16> EVENT = 0x9001;
const bit<48> BITMASKS = 0x035343000002;

// Entries of a table.
const int EVENTS = 16384;
const int ROUTES = 4096;

const bit<16> IPV4 = 0x0800;
const bit<32> ETHERNET_BYTES = 14;
const bit<4> WORDS = 5;        // 4 bytes each, of an IPv4 header without options
const int OPTIONS_BITS = 320;  // at most

const bit<32> PORTS = 512;

// Why a frame was dropped: index of the counter.
typedef bit<8> reason_t;
const reason_t NOT_DROPPED = 0;
const reason_t CUT_SHORT = 1;          // it ends before its attributes or its datagram do
const reason_t EMPTY_EVENT = 2;        // its bitmask is 0
const reason_t UNKNOWN_ATTRIBUTE = 3;  // an id of 32 or more
const reason_t ID_TWICE = 4;           // an id was there before
const reason_t NO_RECEIVER = 5;        // no entry is for the event, or one that says drop
const reason_t NO_ROUTE = 6;           // no prefix holds the IPv4 destination
const reason_t TTL_OVER = 7;           // the IPv4 time to live ends here
const reason_t NOT_IPV4 = 8;           // neither an event nor IPv4
const reason_t BAD_CHECKSUM = 9;       // of the IPv4 header
const bit<32> REASONS = 10;
