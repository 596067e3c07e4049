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
    bit<ID_BITS> id;
#if TAG_BITS
    bit<TAG_BITS> tag;
#endif
#if VALUE_BITS
    bit<VALUE_BITS> value;
#endif
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
    EACH_POSITION(NEXT_HEADER)  // next_1 .. next_K, the labels of this pass
    labels_h later;  // labels of later passes
    labels_h kept;   // labels that earlier passes have kept for copies
    EACH_POSITION(KEPT_HEADER)  // kept_1 .. kept_K, the labels that this pass keeps
    ipv4_h ipv4;  // only in frames without a stack; otherwise, the IPv4 header is part of the payload
    ipv4_options_h options;
    DATAGRAM_HEADERS
}

struct metadata_t {
    @field_list(CARRIED) port_t ingress_port;  // stored here, because recirculation overwrites the original
    @field_list(CARRIED) bit<16> unexamined;   // number of labels that have not been examined yet
    @field_list(CARRIED) bit<2> seen;          // FOREIGN, OWN or KEPT
    @field_list(CARRIED) ports_t ports;        // ports that this run of own labels has selected
    @field_list(CARRIED) ports_t hosts;        // the ports among them that lead to hosts
    @field_list(CARRIED) bit<1> sent;          // a copy has already been sent for an earlier run
    bit<16> others;    // number of labels that do not belong to this pass
    TUNNEL_METADATA
    bit<32> datagram;  // first four bytes after the stack
    bit<1> another;    // a label of this pass starts another run, or ends this run with REACTIVE
    bit<1> alone;      // only the copy that contains the remaining labels is needed
    reason_t reason;   // reason for dropping the frame
}
