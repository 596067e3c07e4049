// Processing of each copy of a frame.

control egress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    apply {
        if (standard.egress_rid != 0) {
            // FAN_OUT makes one copy per subset; this copy is sent only to the ports of its own subset.
            meta.ports = meta.ports & (64w0xff << (((bit<8>) standard.egress_rid - 1) << 3));
            if (meta.ports == 0) {
                mark_to_drop(standard);
            } else {
                recirculate_preserving_field_list(CARRIED);
            }
        } else if (meta.acknowledged != 0 && standard.egress_port == meta.acknowledged) {
            // The payload of the UDP datagram is returned unchanged.
            hdr.ethernet.dst = 24w0x01005E ++ 1w0 ++ ACK[0:0] ++ hdr.ipv4.dst[21:0];
            hdr.ethernet.src = ACKNOWLEDGER_MAC;
            hdr.ipv4.src = ACKNOWLEDGER;
            hdr.ipv4.dst = PROTO_ID ++ ACK ++ hdr.ipv4.dst[21:0];
            hdr.udp.checksum = 0;
        }
    }
}
