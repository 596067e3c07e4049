// Processes a state message and sends it, or drops and counts it.

control ingress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    counter(REASONS, CounterType.packets) dropped;

    ports_t tree_links = 0;
    ports_t tree_hosts = 0;
    bit<8> lease_bits = 0;

    // links: ports of the tree that connects all switches. hosts: ports that lead to hosts. lease: a
    // port is remembered for 2^lease to 2 * 2^lease microseconds.
    action span(ports_t links, ports_t hosts, bit<8> lease) {
        tree_links = links;
        tree_hosts = hosts;
        lease_bits = lease;
    }

    action none() {
    }

    table tree {
        key = {
            hdr.ipv4.dst[31:24]: exact @name("protocol");
        }
        actions = {
            span;
            @defaultonly none;
        }
        const default_action = none();
        size = TREES;
    }

    check_source() source;
    check_message() check;
    replicate_state() states;
    send_copies() send;
    route_ipv4() route;

    apply {
        meta.reason = NOT_DROPPED;
        if (standard.parser_error != error.NoError) {
            meta.reason = CUT_SHORT;
        } else if (standard.instance_type == RECIRCULATED) {
            send.apply(meta, standard);
#ifdef EMBEDDED_CONTROLLER
        } else if (hdr.packet_out.isValid()) {
            meta.ports = hdr.packet_out.ports;
            hdr.packet_out.setInvalid();
            send.apply(meta, standard);
#endif
        } else {
            source.apply(hdr, meta, standard);
            if (meta.reason == NOT_DROPPED) {
                if (!hdr.udp.isValid() || hdr.udp.dst != STATES_PORT) {
                    route.apply(hdr, meta, standard);
                } else {
                    check.apply(hdr, meta, standard);
                    if (meta.reason == NOT_DROPPED) {
                        tree.apply();
                        meta.entered = 64w1 << (bit<8>) (meta.ingress_port - 1);
                        ports_t known = meta.from_switch == 1 ? tree_links : tree_hosts;
                        if (meta.ingress_port > PORTS || (known & meta.entered) == 0) {
                            meta.reason = NOT_ON_TREE;
                        } else {
#ifdef EMBEDDED_CONTROLLER
                            states.apply(hdr, meta, standard, tree_links, tree_hosts);
#else
                            states.apply(hdr, meta, standard, tree_links, tree_hosts, lease_bits);
#endif
                            if (meta.ports != 0) {
                                send.apply(meta, standard);
#ifndef EMBEDDED_CONTROLLER
                            } else {
                                // A register or remove message that is not forwarded.
                                mark_to_drop(standard);
#endif
                            }
                        }
                    }
                }
            }
        }
        if (meta.reason != NOT_DROPPED) {
            dropped.count((bit<32>) meta.reason);
            mark_to_drop(standard);
        }
    }
}
