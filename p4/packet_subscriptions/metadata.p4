// What goes with a packet.
struct metadata_t {
    @field_list(KEPT_FIELDS) bit<8> step;
    @field_list(KEPT_FIELDS) ports_t elsewhere;  // ports that it did not come in by
    @field_list(KEPT_FIELDS) ports_t ports;  // of one event, then of the packet
    @field_list(KEPT_FIELDS) ports_t all_ports;  // of the messages so far
    @field_list(KEPT_FIELDS) bit<16> place;  // messages so far
    @field_list(KEPT_FIELDS) bit<32> examined_bits;
    bit<1> again;  // comes in again
    bit<1> ready;  // to be sent to its ports
    reason_t reason;  // why it is dropped
    bit<16> header_bytes;  // of IPv4, with its options
    bit<1> events;  // 1: a datagram of messages
    bit<16> length;
    bit<16> no_sum;  // stays 0
    bit<1> summed;  // a UDP checksum to be made
    bit<8> feed;  // 0: no event
    bit<8> message_type;
    state_t state;
    @field_list(KEPT_FIELDS) state_t next;  // where the next group of rules begins; 0: none
    terms_t terms;  // that no field so far speaks against
    bit<64> now;
}
