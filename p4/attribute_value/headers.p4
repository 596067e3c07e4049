// Headers and metadata of a frame.

header ethernet_h {
    bit<48> dst;
    bit<48> src;
    bit<16> type_;
}

header first_id_h {
    id_t id;
}

header pair_h {
    raw_t value;
    id_t next;  // 0 after the last value
}

header bitmask_h {
    bitmask_t bitmask;
}

header value_h {
    raw_t value;
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

// An event uses one of two encodings. The elements of pairs have the same order as in the frame, so that the
// frame is emitted unchanged. Element i of values is attribute i, which is also the order in the frame.
struct headers_t {
    ethernet_h ethernet;
    first_id_h first;
    pair_h[ATTRIBUTES] pairs;
    bitmask_h bitmask;
    value_h[ATTRIBUTES] values;
    ipv4_h ipv4;
    ipv4_options_h options;
}

// The metadata contains a copy of the values, because a key must not be a header that may be invalid (KUNDEL III-C).
struct metadata_t {
    @field_list(CARRIED) port_t ingress_port;  // stored here, because recirculation overwrites the original
    @field_list(CARRIED) bit<32> pass;         // next pass; 0 before the first pass and after the last one
    @field_list(CARRIED) ports_t ports;        // ports with matching rules
    @field_list(CARRIED) start_t now;          // arrival time of the event, if a pass reads a cell
    bit<1> event;
    bitmask_t bitmask;  // attributes that are present
    EACH_ATTRIBUTE(VALUE_FIELD)  // 0 if the attribute is absent
    id_t next_id;    // id pairs: the id of the next value
    bitmask_t left;  // bitmask: attributes that have not been parsed yet
    bit<32> rows;     // selects the rows of table event for this pass; 0 for none
    bit<32> vectors;  // selects the bit vectors for this pass; 0 for none
    terms_t terms;    // terms that match all attributes checked so far
    bit<8> subset;    // n + 1 if each word of the terms covers the nth 8 ports; 0 if it covers all ports
    bit<32> states;   // selects the rows of table states for this pass; 0 if the pass does not read a cell
    bit<32> operand;  // attribute that updates the cell, or NO_OPERAND
    reason_t reason;  // reason for dropping the frame
}
