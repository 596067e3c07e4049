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
        } else if (meta.event == 1 && meta.pass != 0) {
            recirculate_preserving_field_list(CARRIED);
        }
    }
}
