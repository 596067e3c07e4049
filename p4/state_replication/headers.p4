// Headers and metadata of a frame.

header ethernet_h {
    bit<48> dst;
    bit<48> src;
    bit<16> type_;
}

header ipv4_h {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> length;
    bit<16> id;
    bit<3> flags;
    bit<13> offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header ipv4_options_h {
    varbit<OPTIONS_BITS> values;
}

header udp_h {
    bit<16> src;
    bit<16> dst;
    bit<16> length;
    bit<16> checksum;
}

#ifdef EMBEDDED_CONTROLLER
// Header of messages to the controller of the switch, with the ingress port.
@controller_header("packet_in")
header packet_in_h {
    bit<16> port;
}

// Header of messages from the controller, with the egress ports.
@controller_header("packet_out")
header packet_out_h {
    ports_t ports;
}
#endif

struct headers_t {
#ifdef EMBEDDED_CONTROLLER
    packet_in_h packet_in;
    packet_out_h packet_out;
#endif
    ethernet_h ethernet;
    ipv4_h ipv4;
    ipv4_options_h options;
    udp_h udp;  // only in datagrams to 239.0.0.0/8
}

struct metadata_t {
    @field_list(CARRIED) port_t ingress_port;  // port that gets no copy; 0 for none
    @field_list(CARRIED) ports_t ports;        // ports that the message is sent to
    @field_list(CARRIED) port_t acknowledged;  // port whose copy is the ack; 0 for none
    ports_t entered;     // mask of the ingress port
    bit<1> from_switch;  // the ingress port leads to a switch
    bit<1> publisher;    // the ingress port leads to a host that may publish
    reason_t reason;     // reason for dropping the frame
}
