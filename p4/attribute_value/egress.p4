// What a single copy still needs.

control egress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    apply {
        if (standard.egress_rid != 0) {
            // One copy of FAN_OUT: it goes on to the ports of its own subset alone.
            meta.ports = meta.ports & (64w0xff << (((bit<8>) standard.egress_rid - 1) << 3));
            if (meta.ports == 0) {
                mark_to_drop(standard);
            } else {
                recirculate_preserving_field_list(CARRIED);
            }
        } else if (meta.event == 1 && meta.pass != 0) {
            recirculate_preserving_field_list(CARRIED);
        }
    }
}
