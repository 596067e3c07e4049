// Widths and sizes.
typedef bit<32> state_t;
typedef bit<9> port_t;
typedef bit<64> ports_t;  // the lowest bit is port 1
typedef bit<256> terms_t;  // words of ports_t
typedef bit<16> group_t;
typedef bit<64> value_t;  // of a cell
typedef bit<48> start_t;  // of a cell's window

const bit<16> EVENT_PORT = 26400;
const int ROWS = 65536;  // of a table, at most
const int ROUTES = 4096;
const int SOURCES = 64;
const port_t PORTS = 64;
const ports_t ALL_PORTS = 0xffffffffffffffff;
const group_t FAN_OUT = 0x1000;  // a copy for each subset of the ports
const port_t NOWHERE = 0;  // only to pass egress and come in again
const bit<16> IPV4 = 0x0800;
const bit<8> UDP = 17;
const bit<8> IGMP = 2;
const bit<4> GROUPS = 0xe;  // 224.0.0.0/4
const bit<24> LOCAL_NETWORK_CONTROL = 0xe00000;  // 224.0.0.0/24 (RFC 5771)
const bit<32> BROADCAST = 0xffffffff;
const bit<32> ETHERNET_BYTES = 14;
const bit<16> IPV4_BYTES = 20;  // without options
const int OPTIONS_BITS = 320;  // at most
const bit<8> FEED = 1;

const int MESSAGES = 64;  // of a datagram, at most
const bit<16> MESSAGE = 1500;  // bytes of one
const bit<16> DATAGRAM = 9000;  // bytes, from UDP on
const int MESSAGE_BITS = 12000;
const bit<32> WANTED_BITS = 64;
const bit<32> LENGTH_BITS = 16;
const bit<16> LENGTH_OCTETS = 2;
// What was examined has the ports of each message, too.
const int EXAMINED_BITS = 76096;

// standard_metadata.instance_type
const bit<32> RECIRCULATED = 4;

// Which pass of a packet.
const bit<8> ARRIVED = 0;  // the first
const bit<8> EXAMINE = 1;  // the next message, or the next group of rules
const bit<8> DELIVER = 2;  // all of them are examined
const bit<8> WHOLE = 3;  // the ports are known, nothing comes off
const bit<8> KEPT_FIELDS = 1;  // what a packet takes along

// Why packets are dropped: indexes of the counter ingress.dropped.
typedef bit<8> reason_t;
const reason_t NOT_DROPPED = 0;
const reason_t CUT_SHORT = 1;  // the frame ends before what it announces
const reason_t BAD_LENGTH = 2;  // lengths, or the number of messages, contradict each other
const reason_t TOO_MANY_MESSAGES = 3;  // more than a datagram may have
const reason_t TOO_LONG = 4;  // a message or a datagram
const reason_t BAD_CHECKSUM = 5;  // of IPv4 or of UDP
const reason_t UNWANTED = 6;  // no port wants any of the messages
const reason_t NO_PORT = 7;  // only the port that the packet came in by wants any
const reason_t NO_ROUTE = 8;  // no prefix holds the IPv4 destination
const reason_t TTL_OVER = 9;  // the IPv4 time to live ends here
const reason_t NOT_IPV4 = 10;  // neither an event nor IPv4
const reason_t UNKNOWN_PORT = 11;  // nothing is known to be behind the port that it came in by
const reason_t NO_PUBLISHER = 12;  // an event from a host that is no publisher
const reason_t FORGED_ADDRESS = 13;  // IPv4 from another address than the host's
const reason_t LINK_LOCAL = 14;  // control traffic between neighbors
const bit<32> REASONS = 15;
