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
    bit<LABEL_BITS> value;  // in hybrid stacks, the type is in the top 2 bits
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
    @field_list(CARRIED) ports_t ports;        // ports that labels select; in a copy with cut, the port of the copy
    @field_list(CARRIED) ports_t along;        // the ports among them that stored labels lead to
    @field_list(CARRIED) bit<1> stored;        // a stored label has been found in the stack
    @field_list(CARRIED) bit<1> uneven;        // some labels are not needed behind every port
    @field_list(CARRIED) bit<1> cut;           // labels that are not needed behind its port are removed from this copy
    @field_list(CARRIED) bit<1> own;           // the hops or ports that follow belong to this switch
    @field_list(CARRIED) ports_t under;        // ports of the hop or switch whose labels are being examined
    bit<16> later;     // number of labels that do not belong to this pass
    TUNNEL_METADATA
    bit<32> datagram;  // first four bytes after the stack
    reason_t reason;   // reason for dropping the frame
}
