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
    bit<LABEL_BITS> value;  // of hybrid stacks: type in the top 2 bits
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
    @field_list(CARRIED) ports_t ports;        // that labels choose; of a copy that is cut, its own
    @field_list(CARRIED) ports_t along;        // those of them that anything stored leads to
    @field_list(CARRIED) bit<1> stored;        // a stored label was there
    @field_list(CARRIED) bit<1> uneven;        // some label does not go by every port
    @field_list(CARRIED) bit<1> cut;           // this copy: labels that do not lead on are taken off
    @field_list(CARRIED) bit<1> own;           // hops, or ports, are this switch's
    @field_list(CARRIED) ports_t under;        // of the hop, or switch, whose labels are looked at
    bit<16> later;     // labels that are not of this pass
    TUNNEL_METADATA
    bit<32> datagram;  // the first four bytes behind the stack
    reason_t reason;   // to drop the frame
}
