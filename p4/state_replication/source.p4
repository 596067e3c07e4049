// Who may send what into this switch, by the port that it comes in by.
//
// A host sends under its own address alone. It registers and removes its own port, as that is all
// that a message can be about, and publishes if the tables make it a publisher. A port without an
// entry has no neighbor in the tables: nothing is taken from it.

control check_source(
    in headers_t hdr,
    inout metadata_t meta,
    in standard_metadata_t standard
) {
    bit<32> address = 0;

    // A switch.
    action trust() {
        meta.from_switch = 1;
    }

    action publisher(bit<32> ipv4) {
        meta.publisher = 1;
        address = ipv4;
    }

    // Any other host.
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
