// What becomes of a frame: an event is sent to a group, other traffic is routed, the rest dropped.

control ingress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    counter(REASONS, CounterType.packets) dropped;

    route_ipv4() route;

    action send_to_group(group_t group) {
        standard.mcast_grp = group;
    }

    // A hole in what another entry sends.
    action drop_event() {
        standard.mcast_grp = NO_GROUP;
    }

    // One generic table for all events (KUNDEL III-C, Listing 2). Its entries are prefixes, as those
    // of the listing's lpm keys are, but v1model takes one lpm key a table ("multiple LPM keys in
    // table ingress.event not supported"): the values are ternary, every mask a prefix. So entries
    // need priorities, which overlapping ones need anyhow.
    table event {
        key = {
            meta.bitmask: ternary @name("bitmask");
            EACH_ATTRIBUTE(VALUE_KEY)
        }
        actions = {
            send_to_group;
            drop_event;
        }
        const default_action = drop_event();
        size = EVENTS;
    }

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
        } else if (meta.event == 1) {
            event.apply();
            if (standard.mcast_grp == NO_GROUP) {
                meta.reason = NO_RECEIVER;
            }
        } else {
            route.apply(hdr, meta, standard);
        }
        if (meta.reason != NOT_DROPPED) {
            dropped.count((bit<32>) meta.reason);
            mark_to_drop(standard);
        }
    }
}
