// Checks whether the neighbor at the ingress port may send a packet.
//
// Only switches and publishers may send events. Other hosts may send only plain traffic,
// and IPv4 only from their own address. If a port has no row, the tables contain no
// neighbor at this port, and its packets are dropped.
control check_source(in headers_t hdr, in bool published, inout metadata_t meta,
                     in standard_metadata_t standard_metadata) {
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

    @name("port")
    table port_rows {
        key = {
            standard_metadata.ingress_port : exact @name("port");
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
        port_rows.apply();
        if (meta.reason != NOT_DROPPED) {
            // The ingress port is unknown.
        } else if (published) {
            if (!trusted) {
                meta.reason = NO_PUBLISHER;
            }
        } else if (hdr.ipv4.isValid()) {
            // Routers do not forward these packets, and some have no source address.
            if ((hdr.ipv4.protocol == IGMP && hdr.ipv4.dst[31:28] == GROUPS)
                || hdr.ipv4.dst[31:8] == LOCAL_NETWORK_CONTROL || hdr.ipv4.dst == BROADCAST) {
                meta.reason = LINK_LOCAL;
            } else if (!trusted && hdr.ipv4.src != address) {
                meta.reason = FORGED_ADDRESS;
            }
        }
    }
}
