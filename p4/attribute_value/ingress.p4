// Sends an event to the ports with matching rules, routes IPv4, bridges ARP and IPv6, and drops all other
// frames.

control ingress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    counter(REASONS, CounterType.packets) dropped;

    check_source() source;
    match_event() subscriptions;
    bridge() bridged;
    send_copies() send;
    route_ipv4() route;

    apply {
        meta.reason = NOT_DROPPED;
        if (standard.parser_error == error.EmptyEvent) {
            meta.reason = EMPTY_EVENT;
        } else if (standard.parser_error == error.UnknownAttribute) {
            meta.reason = UNKNOWN_ATTRIBUTE;
        } else if (standard.parser_error == error.IdTwice) {
            meta.reason = ID_TWICE;
        } else if (standard.parser_error != error.NoError) {
            meta.reason = CUT_SHORT;
        } else {
            if (standard.instance_type != RECIRCULATED) {
                meta.ingress_port = standard.ingress_port;
                meta.ports = 0;
                meta.pass = 0;
                source.apply(hdr, meta.event == 1, meta, standard);
            }
            if (meta.reason != NOT_DROPPED) {
                // This neighbor is not permitted to send the frame.
            } else if (standard.instance_type == RECIRCULATED && meta.pass == 0) {
                // For a copy of FAN_OUT, the ports are already known.
            } else if (meta.event == 1) {
                subscriptions.apply(meta, standard);
                if (meta.pass != 0) {
                    standard.egress_spec = NOWHERE;
                } else if (meta.ports == 0) {
                    meta.reason = NO_RECEIVER;
                }
            } else if (hdr.ethernet.type_ == ARP || hdr.ethernet.type_ == IPV6) {
                bridged.apply(hdr, meta);
            } else {
                route.apply(hdr, meta, standard);
            }
            if (meta.pass == 0 && meta.ports != 0) {
                send.apply(meta, standard);
            }
        }
        if (meta.reason != NOT_DROPPED) {
            dropped.count((bit<32>) meta.reason);
            mark_to_drop(standard);
        }
    }
}
