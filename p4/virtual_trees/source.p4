// Checks whether the neighbor at the ingress port may send a frame.
//
// Only switches and publishers may send frames to subscribers. Other hosts may send only plain traffic, and IPv4
// only from their own address, so that a host cannot impersonate another one. If a port has no entry, the tables
// contain no neighbor at this port, and its frames are dropped.

control check_source(
    in headers_t hdr,
    in bool published,  // whether the frame is for subscribers
    inout metadata_t meta,
    in standard_metadata_t standard
) {
    bool trusted = true;
    bit<32> address = 0;

    // The neighbor is a switch or a publisher.
    action trust() {
    }

    // The neighbor is another host, and this is its address.
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
            // The ingress port is unknown.
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
