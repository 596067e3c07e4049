// Registers with the ports that lead to subscribers of a state. Each port has a lease.
//
// Time is divided into generations of 2^lease microseconds. The registers of a state contain the ports that were
// registered in the generation of its last message or in the preceding generation; older ports are forgotten.
//
// In each period, a switch forwards one register message per state and link, regardless of how many it receives.
// All hosts refresh their registrations of a state at the same time, every 30 seconds. So every 30 seconds, a link
// carries one message per state in each direction (two if a period ends in between), and a lost message is
// followed by another one 30 seconds later.

#ifndef EMBEDDED_CONTROLLER
control replicate_state(
    in headers_t hdr,
    inout metadata_t meta,
    in standard_metadata_t standard,
    in ports_t links,  // ports of the tree
    in ports_t hosts,
    in bit<8> lease
) {
    register<ports_t>(STATES) subscribers;
    register<ports_t>(STATES) earlier;
    register<bit<32>>(STATES) generation;
    register<ports_t>(STATES) informed;  // links that were sent a register in period_informed, and no remove since then
    register<bit<32>>(STATES) period_informed;

    apply {
        bit<2> kind = hdr.ipv4.dst[23:22];
        bit<32> state = (bit<32>) hdr.ipv4.dst[21:0];
        ports_t now;
        ports_t before;
        bit<32> last;
        ports_t known;
        bit<32> period_known;
        bit<32> current = (bit<32>) (standard.ingress_global_timestamp >> lease);
        bit<32> period = (bit<32>) (standard.ingress_global_timestamp >> (lease - PERIOD_BITS));
        if (state >= STATES) {
            meta.reason = UNKNOWN_STATE;
        } else if (kind == ACK) {
            meta.reason = STRAY_ACK;
        } else {
            subscribers.read(now, state);
            earlier.read(before, state);
            generation.read(last, state);
            if (current != last) {
                before = current == last + 1 ? now : 0;
                now = 0;
            }
            // Ports that no longer belong to the tree are not used, even if they lead to subscribers.
            now = now & (links | hosts);
            before = before & (links | hosts);
            if (kind == PUBLISH) {
                meta.ports = (now | before) & ~meta.entered;
                if (meta.ports == 0) {
                    meta.reason = NO_SUBSCRIBER;
                }
            } else {
                informed.read(known, state);
                period_informed.read(period_known, state);
                known = known & links;
                if (kind == REGISTER) {
                    now = now | meta.entered;
                    if (period != period_known) {
                        known = 0;
                        period_known = period;
                    }
                    meta.ports = links & ~known & ~meta.entered;
                    known = known | meta.ports;
                } else {
                    now = now & ~meta.entered;
                    before = before & ~meta.entered;
                    ports_t left = now | before;
                    // A link does not need updates from this switch if no other port has subscribers. This
                    // applies to all links if no port remains, and only to q if only q remains.
                    if (left == 0) {
                        meta.ports = links;
                    } else if ((left & (left - 1)) == 0) {
                        meta.ports = links & left;
                    }
                    meta.ports = meta.ports & ~meta.entered;
                    known = known & ~meta.ports;
                }
                subscribers.write(state, now);
                earlier.write(state, before);
                generation.write(state, current);
                informed.write(state, known);
                period_informed.write(state, period_known);
                if (meta.from_switch == 0) {
                    meta.ports = meta.ports | meta.entered;
                    meta.acknowledged = meta.ingress_port;
                    meta.ingress_port = 0;
                }
            }
        }
    }
}
#endif
