// Checks the label count of a frame that has just arrived.
//
// An IPv4 datagram that fills the rest of the frame must follow the labels. Only a short frame, which Ethernet may
// have padded, can have more bytes. If the label count is too small, there are labels where the datagram should be.

control check_stack(
    in headers_t hdr,
    inout metadata_t meta,
    in standard_metadata_t standard
) {
    apply {
        bit<32> rest = standard.packet_length - ETHERNET_BYTES - COUNT_BYTES
            - ((bit<32>) hdr.stack.num_entries << LABEL_BYTES_SHIFT);
        bit<32> length = (bit<32>) meta.datagram[15:0];
        if (hdr.stack.num_entries == 0) {
            meta.reason = EMPTY_STACK;
        } else if (hdr.stack.num_entries > MAX_LABELS) {
            meta.reason = TOO_MANY_LABELS;
        } else if (
            meta.datagram[31:24] < 0x45 || meta.datagram[31:24] > 0x4f
            || length < IPV4_BYTES || length > rest
            || (length != rest && standard.packet_length > SHORTEST_FRAME)
        ) {
            meta.reason = BAD_COUNT;
        }
    }
}
