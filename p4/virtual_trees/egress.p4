// Processing of each copy of a frame.

control egress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    enter_tunnel() tunnel;

    action take_stack_off() {
        hdr.ethernet.type_ = IPV4;
        hdr.stack.setInvalid();
        EACH_POSITION(TAKE_LABEL_OFF)
        hdr.later.setInvalid();
    }

    // Ports that lead to a host.
    table host_port {
        key = {
            standard.egress_port: exact @name("port");
        }
        actions = {
            take_stack_off;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = HOST_PORTS;
    }

    apply {
        bool leaves = false;
        if (meta.inside == 1) {
            recirculate_preserving_field_list(CARRIED);
        } else if (standard.egress_rid != 0) {
            // FAN_OUT makes one copy per subset; this copy is sent only to the ports of its own subset.
            meta.ports = meta.ports & shift(0xff, (bit<9>) (standard.egress_rid - 1) << 3);
            if (meta.ports == 0) {
                mark_to_drop(standard);
            } else {
                recirculate_preserving_field_list(CARRIED);
            }
        } else if (meta.unexamined != 0) {
            recirculate_preserving_field_list(CARRIED);
        } else {
            leaves = true;
            if (hdr.stack.isValid()) {
                host_port.apply();
            }
        }
        if (leaves) {
            tunnel.apply(hdr, meta, standard);
        }
    }
}
