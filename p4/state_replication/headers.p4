// Headers of a frame, and what is known of it on its way.

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
// To the switch's own controller: the port that a message came in by.
@controller_header("packet_in")
header packet_in_h {
    bit<16> port;
}

// From it: where to send a message.
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
    udp_h udp;  // of what is sent to 239.0.0.0/8
}

struct metadata_t {
    @field_list(CARRIED) port_t ingress_port;  // that no copy is sent to; 0 for none
    @field_list(CARRIED) ports_t ports;        // to send to
    @field_list(CARRIED) port_t acknowledged;  // where a copy is the ack; 0 for nowhere
    ports_t entered;     // the port that the frame came in by
    bit<1> from_switch;  // which leads to a switch
    bit<1> publisher;    // or to a host that may publish
    reason_t reason;     // to drop the frame
}
