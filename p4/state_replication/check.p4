// Checks whether a state message is complete, and whether its sender is permitted to send it.

control check_message(
    in headers_t hdr,
    inout metadata_t meta,
    in standard_metadata_t standard
) {
    apply {
        bit<16> rest = hdr.ipv4.length - ((bit<16>) hdr.ipv4.ihl << 2);
        if (standard.checksum_error == 1) {
            meta.reason = BAD_CHECKSUM;
        } else if (
            (bit<32>) hdr.ipv4.length > standard.packet_length - ETHERNET_BYTES
            || hdr.ipv4.length < (bit<16>) hdr.ipv4.ihl << 2
            || hdr.udp.length != rest || rest < UDP_BYTES + HEADER_BYTES
        ) {
            meta.reason = CUT_SHORT;
        } else if (hdr.ipv4.dst[21:0] == 0) {
            meta.reason = UNKNOWN_STATE;
        } else if (hdr.ipv4.dst[23:22] == ACK && meta.from_switch == 0) {
            meta.reason = ACK_FROM_HOST;
        } else if (
            hdr.ipv4.dst[23:22] == PUBLISH && meta.from_switch == 0 && meta.publisher == 0
        ) {
            meta.reason = NO_PUBLISHER;
        }
    }
}
