// Widths and sizes.
typedef bit<32> state_t;
typedef bit<9> port_t;
typedef bit<64> ports_t;  // the lowest bit is port 1
typedef bit<256> terms_t;  // words of type ports_t
typedef bit<16> group_t;
typedef bit<64> value_t;  // value of a cell
typedef bit<48> start_t;  // start of the window of a cell

const bit<16> EVENT_PORT = 26400;
const int ROWS = 65536;  // maximum size of a table
const int ROUTES = 4096;
const int SOURCES = 64;
const port_t PORTS = 64;
const ports_t ALL_PORTS = 0xffffffffffffffff;
const group_t FAN_OUT = 0x1000;  // one copy per subset of the ports
const port_t NOWHERE = 0;  // port of packets that are recirculated
const bit<16> IPV4 = 0x0800;
const bit<8> UDP = 17;
const bit<8> IGMP = 2;
const bit<4> GROUPS = 0xe;  // 224.0.0.0/4
const bit<24> LOCAL_NETWORK_CONTROL = 0xe00000;  // 224.0.0.0/24 (RFC 5771)
const bit<32> BROADCAST = 0xffffffff;
const bit<32> ETHERNET_BYTES = 14;
const bit<16> IPV4_BYTES = 20;  // IPv4 header without options
const int OPTIONS_BITS = 320;  // maximum
const bit<8> FEED = 1;

const int MESSAGES = 64;  // maximum per datagram
const bit<16> MESSAGE = 1500;  // maximum size of a message
const bit<16> DATAGRAM = 9000;  // maximum size, with UDP header
const int MESSAGE_BITS = 12000;
const bit<32> WANTED_BITS = 64;
const bit<32> LENGTH_BITS = 16;
const bit<16> LENGTH_OCTETS = 2;
// The size of examined messages includes the ports of each message.
const int EXAMINED_BITS = 76096;

// standard_metadata.instance_type
const bit<32> RECIRCULATED = 4;

// Steps of a packet.
const bit<8> ARRIVED = 0;  // first pass
const bit<8> EXAMINE = 1;  // next message, or next group of rules
const bit<8> DELIVER = 2;  // all messages have been examined
const bit<8> WHOLE = 3;  // the ports are known, and no message is removed
const bit<8> KEPT_FIELDS = 1;  // metadata that is preserved by recirculation

// Reasons for dropping a packet, which are indexes of counter ingress.dropped.
typedef bit<8> reason_t;
const reason_t NOT_DROPPED = 0;
const reason_t CUT_SHORT = 1;  // the frame is shorter than its headers indicate
const reason_t BAD_LENGTH = 2;  // lengths or the number of messages are contradictory
const reason_t TOO_MANY_MESSAGES = 3;  // the datagram has more than MESSAGES messages
const reason_t TOO_LONG = 4;  // a message or the datagram is too long
const reason_t BAD_CHECKSUM = 5;  // the checksum of IPv4 or UDP is wrong
const reason_t UNWANTED = 6;  // no rule matches any of the messages
const reason_t NO_PORT = 7;  // only the ingress port has matching rules
const reason_t NO_ROUTE = 8;  // no prefix matches the IPv4 destination
const reason_t TTL_OVER = 9;  // the IPv4 time to live has expired
const reason_t NOT_IPV4 = 10;  // the packet is neither an event nor IPv4
const reason_t UNKNOWN_PORT = 11;  // the tables have no neighbor at the ingress port
const reason_t NO_PUBLISHER = 12;  // an event from a host that is not a publisher
const reason_t FORGED_ADDRESS = 13;  // IPv4 from an address that differs from that of the host
const reason_t LINK_LOCAL = 14;  // control traffic between neighbors
const bit<32> REASONS = 15;
