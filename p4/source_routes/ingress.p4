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
        meta.another = 0;
        meta.alone = 0;
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
                if (meta.another == 1) {
                    meta.ports = meta.ports & ~shift(1, meta.ingress_port - 1);
                    if (meta.ports == 0) {
                        meta.alone = 1;
                        standard.egress_spec = NOWHERE;
                    } else {
                        meta.sent = 1;
                        standard.mcast_grp = SPLIT;
                    }
                } else if (meta.unexamined != 0) {
                    standard.egress_spec = NOWHERE;
                } else if (meta.seen == FOREIGN) {
                    meta.reason = UNKNOWN_LABELS;
#ifdef REACTIVE
                } else if (meta.seen == KEPT) {
                    meta.reason = NO_PORT;
#endif
                } else if (hdr.stack.num_entries != 0) {
                    send.apply(meta, standard);
                } else {
                    // A frame with an empty stack is sent only to hosts.
                    meta.ports = meta.ports & meta.hosts;
                    if (meta.ports == 0) {
                        meta.reason = NO_LABEL_LEFT;
                    } else {
                        send.apply(meta, standard);
                    }
                }
            }
        }
        if (meta.reason != NOT_DROPPED) {
            // The frame does not count as dropped if copies were sent for an earlier run of its labels.
            if (meta.sent == 0) {
                dropped.count((bit<32>) meta.reason);
            }
            mark_to_drop(standard);
        }
    }
}
