// Headers and metadata of a frame.

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
    EACH_POSITION(LABEL_HEADER)  // label_1 .. label_K, the labels of this pass
    labels_h later;  // all other labels
    ipv4_h ipv4;  // only in frames without a stack; otherwise, the IPv4 header is part of the payload
    ipv4_options_h options;
    DATAGRAM_HEADERS
}

struct metadata_t {
    @field_list(CARRIED) port_t ingress_port;  // stored here, because recirculation overwrites the original
    @field_list(CARRIED) bit<16> unexamined;   // number of labels that have not been examined yet
    @field_list(CARRIED) ports_t ports;        // ports that trees and hops add
    @field_list(CARRIED) ports_t pruned;       // ports that stops prune
    bit<16> later;     // number of labels that do not belong to this pass
    TUNNEL_METADATA
    bit<32> datagram;  // first four bytes after the stack
    bit<1> untyped;    // a label of this pass has type 00
    reason_t reason;   // reason for dropping the frame
}
