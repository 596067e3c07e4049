// Metadata of a packet.
struct metadata_t {
    @field_list(KEPT_FIELDS) bit<8> step;
    @field_list(KEPT_FIELDS) ports_t elsewhere;  // all ports, except the ingress port
    @field_list(KEPT_FIELDS) ports_t ports;  // ports of one event, then of the packet
    @field_list(KEPT_FIELDS) ports_t all_ports;  // ports of the messages so far
    @field_list(KEPT_FIELDS) bit<16> place;  // number of messages so far
    @field_list(KEPT_FIELDS) bit<32> examined_bits;
    bit<1> again;  // 1 to recirculate the packet
    bit<1> ready;  // 1 to send the packet to its ports
    reason_t reason;  // reason for dropping the packet
    bit<16> header_bytes;  // bytes of the IPv4 header with its options
    bit<1> events;  // 1 for a datagram with messages
    bit<16> length;
    bit<16> no_sum;  // always 0
    bit<1> summed;  // 1 to compute the UDP checksum
    bit<8> feed;  // 0 if there is no event
    bit<8> message_type;
    state_t state;
    @field_list(KEPT_FIELDS) state_t next;  // first state of the next group of rules; 0 for none
    terms_t terms;  // terms that match all fields so far
    bit<64> now;
}
