// The ports behind which somebody subscribed to a state, in a table.
//
// The controller on the switch gets every register and remove, and acks of other switches; it writes
// the rows, sends on what must go on, and acknowledges.

#ifdef EMBEDDED_CONTROLLER
control replicate_state(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard,
    in ports_t links,  // of the tree
    in ports_t hosts
) {
    action send(ports_t ports) {
        meta.ports = ports & (links | hosts) & ~meta.entered;
    }

    action nobody() {
    }

    // Rows of the switch's own controller, in its role: no other client writes them.
    @p4runtime_role("states")
    table state {
        key = {
            hdr.ipv4.dst[21:0]: exact @name("state");
        }
        actions = {
            send;
            @defaultonly nobody;
        }
        const default_action = nobody();
        size = STATE_ROWS;
    }

    apply {
        if (hdr.ipv4.dst[23:22] == PUBLISH) {
            state.apply();
            if (meta.ports == 0) {
                meta.reason = NO_SUBSCRIBER;
            }
        } else {
            hdr.packet_in.setValid();
            hdr.packet_in.port = (bit<16>) meta.ingress_port;
            standard.egress_spec = CPU_PORT;
        }
    }
}
#endif
