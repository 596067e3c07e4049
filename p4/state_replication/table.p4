// Table with the ports that lead to subscribers of a state.
//
// The controller on the switch receives every register and remove message, and the acks from other switches.
// It writes the rows, forwards messages if necessary, and acknowledges them.

#ifdef EMBEDDED_CONTROLLER
control replicate_state(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard,
    in ports_t links,  // ports of the tree
    in ports_t hosts
) {
    action send(ports_t ports) {
        meta.ports = ports & (links | hosts) & ~meta.entered;
    }

    action nobody() {
    }

    // Only the controller of the switch writes these rows, with its own role.
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
