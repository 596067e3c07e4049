// Recirculates a frame, sends it, or drops and counts it.

control ingress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    counter(REASONS, CounterType.packets) dropped;

    check_source() source;
    check_stack() check;
    EACH_POSITION(LABEL_TABLE)
    send_copies() send;
    leave_tunnel() leave;
    route_ipv4() route;

    apply {
        meta.reason = NOT_DROPPED;
        meta.length = (bit<16>) standard.packet_length;
        if (standard.parser_error != error.NoError) {
            meta.reason = CUT_SHORT;
        } else if (meta.fresh == 1) {
            if (standard.instance_type != RECIRCULATED) {
                source.apply(hdr, hdr.stack.isValid(), meta, standard);
            }
            if (meta.reason == NOT_DROPPED && hdr.stack.isValid()) {
                check.apply(hdr, meta, standard);
            }
        }
        if (meta.reason == NOT_DROPPED) {
            if (!hdr.stack.isValid()) {
                if (standard.instance_type != RECIRCULATED) {
                    leave.apply(hdr, meta, standard);
                }
                if (meta.inside == 0) {
                    route.apply(hdr, meta, standard);
                }
            } else {
                EACH_POSITION(LOOK_UP_LABEL)
                if (meta.unexamined != 0) {
                    standard.egress_spec = NOWHERE;
                } else if (meta.ports == 0) {
                    meta.reason = UNKNOWN_LABELS;
                } else if (hdr.stack.num_entries == 0) {
                    meta.reason = NO_LABEL_LEFT;
                } else {
                    send.apply(meta, standard);
                }
            }
        }
        if (meta.reason != NOT_DROPPED) {
            dropped.count((bit<32>) meta.reason);
            mark_to_drop(standard);
        }
    }
}
