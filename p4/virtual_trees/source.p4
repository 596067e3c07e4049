// Who may send what into this switch, by the port that it comes in by.
//
// Only switches and publishers send what is passed on to subscribers. Any other host sends plain
// traffic, and in IPv4 under its own address alone, so that none can speak for another. A port
// without an entry has no neighbor in the tables: nothing is taken from it.

control check_source(
    in headers_t hdr,
    in bool published,  // whether the frame is one for subscribers
    inout metadata_t meta,
    in standard_metadata_t standard
) {
    bool trusted = true;
    bit<32> address = 0;

    // A switch, or a publisher.
    action trust() {
    }

    // Any other host, of this address.
    action host(bit<32> ipv4) {
        trusted = false;
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
            host;
            @defaultonly unknown;
        }
        const default_action = unknown();
        size = SOURCES;
    }

    apply {
        port.apply();
        if (meta.reason != NOT_DROPPED) {
            // Nothing is taken from this port.
        } else if (published) {
            if (!trusted) {
                meta.reason = NO_PUBLISHER;
            }
        } else if (hdr.ipv4.isValid()) {
            if (is_link_local(hdr.ipv4.protocol, hdr.ipv4.dst)) {
                meta.reason = LINK_LOCAL;
            } else if (!trusted && hdr.ipv4.src != address) {
                meta.reason = FORGED_ADDRESS;
            }
        }
    }
}
