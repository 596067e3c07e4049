// Headers of a frame, and what is known of it on its way.

header ethernet_h {
    bit<48> dst;
    bit<48> src;
    bit<16> type_;
}

header stack_h {
    bit<16> num_entries;
}

header label_h {
    bit<LABEL_BITS> value;  // type in the top 2 bits: 01 tree, 10 hop, 11 stop
}

header labels_h {
    varbit<LABELS_BITS> values;
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

struct headers_t {
    TUNNEL_HEADERS
    ethernet_h ethernet;
    stack_h stack;
    EACH_POSITION(LABEL_HEADER)  // label_1 .. label_K, of this pass
    labels_h later;  // all others
    ipv4_h ipv4;  // of a frame without a stack; behind a stack it is payload
    ipv4_options_h options;
    DATAGRAM_HEADERS
}

struct metadata_t {
    @field_list(CARRIED) port_t ingress_port;  // a frame that goes round loses the one it had
    @field_list(CARRIED) bit<16> unexamined;   // labels that no pass has looked at
    @field_list(CARRIED) ports_t ports;        // gathered from trees and hops
    @field_list(CARRIED) ports_t pruned;       // by stops
    bit<16> later;     // labels that are not of this pass
    TUNNEL_METADATA
    bit<32> datagram;  // the first four bytes behind the stack
    bit<1> untyped;    // a label of this pass is of type 00
    reason_t reason;   // to drop the frame
}
