// Headers of a frame, and what is known of it on its way.

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
    id_t next;  // 0: this was the last
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

// An event has either encoding. Elements of pairs come in the order of the frame, so that it leaves
// as it came; element i of values is attribute i, which is that order, too.
struct headers_t {
    ethernet_h ethernet;
    first_id_h first;
    pair_h[ATTRIBUTES] pairs;
    bitmask_h bitmask;
    value_h[ATTRIBUTES] values;
    ipv4_h ipv4;
    ipv4_options_h options;
}

// Values are here once more, because a key must not be a header that may be missing (KUNDEL III-C).
struct metadata_t {
    @field_list(CARRIED) port_t ingress_port;  // an event that goes round loses the one it had
    @field_list(CARRIED) bit<32> pass;         // the next one; 0: the first, or none is left
    @field_list(CARRIED) ports_t ports;        // of those who asked for the event
    @field_list(CARRIED) start_t now;          // when the event came, if it asks cells
    bit<1> event;
    bitmask_t bitmask;  // the attributes that are there
    EACH_ATTRIBUTE(VALUE_FIELD)  // 0 where absent
    id_t next_id;    // id pairs: the attribute announced
    bitmask_t left;  // bitmask: the attributes not read yet
    bit<32> rows;     // of table event that are for this pass; 0: none
    bit<32> vectors;  // that are for this pass; 0: none
    terms_t terms;    // that no attribute so far speaks against
    bit<8> subset;    // n + 1: in words of the nth 8 ports; 0: in words of all
    bit<32> states;   // of table states that are for this pass; 0: it asks no cell
    bit<32> operand;  // the attribute that updates the cell; or NO_OPERAND
    reason_t reason;  // to drop the frame
}
