// Checks whether the neighbor at the ingress port may send a frame.
//
// A host may send only from its own address, and may publish only if the tables list it as a publisher. It can
// register and remove only its own port, because messages do not contain a port. If a port has no entry, the
// tables contain no neighbor at this port, and its frames are dropped.

control check_source(
    in headers_t hdr,
    inout metadata_t meta,
    in standard_metadata_t standard
) {
    bit<32> address = 0;

    // The neighbor is a switch.
    action trust() {
        meta.from_switch = 1;
    }

    action publisher(bit<32> ipv4) {
        meta.publisher = 1;
        address = ipv4;
    }

    // The neighbor is another host.
    action host(bit<32> ipv4) {
        address = ipv4;
    }

    action unknown() {
        meta.reason = UNKNOWN_PORT;
    }

    table port {
        key = {
            standard.ingress_port: exact @name("port");
        }
        actions = {
            trust;
            publisher;
            host;
            @defaultonly unknown;
        }
        const default_action = unknown();
        size = SOURCES;
    }

    apply {
        meta.from_switch = 0;
        meta.publisher = 0;
        port.apply();
        if (meta.reason == NOT_DROPPED && hdr.ipv4.isValid()) {
            if (is_link_local(hdr.ipv4.protocol, hdr.ipv4.dst)) {
                meta.reason = LINK_LOCAL;
            } else if (meta.from_switch == 0 && hdr.ipv4.src != address) {
                meta.reason = FORGED_ADDRESS;
            }
        }
    }
}
