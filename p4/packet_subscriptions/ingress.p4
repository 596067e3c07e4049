// Drops packets, matches events, and routes all other traffic.
control ingress(inout headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    counter(REASONS, CounterType.packets) dropped;
    check_source() source;
    one_event() subscriptions;
    sending() send;
    ipv4_route() route;

    apply {
        meta.reason = NOT_DROPPED;
        if (meta.step == ARRIVED) {
            // A packet is never sent back to its ingress port.
            meta.elsewhere = ALL_PORTS;
            if (standard_metadata.ingress_port <= PORTS) {
                meta.elsewhere =
                    ~((ports_t) 1 << (bit<8>) (standard_metadata.ingress_port - 1));
            }
        }
        if (standard_metadata.parser_error == error.BadLength) {
            meta.reason = BAD_LENGTH;
        } else if (standard_metadata.parser_error == error.TooManyMessages) {
            meta.reason = TOO_MANY_MESSAGES;
        } else if (standard_metadata.parser_error == error.TooLong) {
            meta.reason = TOO_LONG;
        } else if (standard_metadata.parser_error != error.NoError) {
            meta.reason = CUT_SHORT;
        } else if (standard_metadata.checksum_error == 1) {
            meta.reason = BAD_CHECKSUM;
        } else if (meta.step == ARRIVED) {
            source.apply(hdr, hdr.moldudp64.isValid(), meta, standard_metadata);
        }
        if (meta.reason == NOT_DROPPED) {
            if (meta.step == WHOLE) {
                meta.ready = 1;
            } else if (meta.events == 1) {
                if (meta.step == DELIVER) {
                    meta.ready = 1;
                } else {
                    if (meta.feed == FEED) {
                        subscriptions.apply(hdr, meta, standard_metadata);
                    } else {
                        meta.ports = 0;
                    }
                    if (meta.next == 0) {
                        meta.all_ports = meta.all_ports | meta.ports;
                        meta.place = meta.place + 1;
                    }
                    if (meta.next != 0 || hdr.moldudp64.count > 1) {
                        standard_metadata.egress_spec = NOWHERE;
                        meta.again = 1;
                        meta.step = EXAMINE;
                    }
                    if (meta.next == 0 && hdr.moldudp64.count > 1) {
                        // The message and its ports stay before the next message.
                        hdr.wanted_now.setValid();
                        hdr.wanted_now.ports = meta.ports;
                        meta.examined_bits = meta.examined_bits + WANTED_BITS + LENGTH_BITS
                            + ((bit<32>) hdr.message_block.length << 3);
                    }
                    if (meta.next == 0 && meta.place == hdr.moldudp64.count) {
                        meta.ports = meta.all_ports;
                        meta.ports = meta.ports & meta.elsewhere;
                        meta.step = DELIVER;
                        if (meta.all_ports == 0) {
                            meta.reason = UNWANTED;
                        } else if (meta.ports == 0) {
                            meta.reason = NO_PORT;
                        } else if (hdr.moldudp64.count == 1) {
                            meta.step = WHOLE;
                            meta.ready = 1;
                        }
                    }
                }
            } else {
                route.apply(hdr, meta, standard_metadata);
            }
        }
        if (meta.reason != NOT_DROPPED) {
            dropped.count((bit<32>) meta.reason);
            mark_to_drop(standard_metadata);
        } else if (meta.ready == 1) {
            send.apply(meta, standard_metadata);
        }
    }
}
