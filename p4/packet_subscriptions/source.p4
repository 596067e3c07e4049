// Who may send what into this switch, by the port that it comes in by.
//
// Only switches and publishers send events. Any other host sends plain traffic, and in IPv4
// under its own address alone. A port without a row has no neighbor in the tables: nothing
// is taken from it.
control check_source(in headers_t hdr, in bool published, inout metadata_t meta,
                     in standard_metadata_t standard_metadata) {
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
            // Nothing is taken from this port.
        } else if (published) {
            if (!trusted) {
                meta.reason = NO_PUBLISHER;
            }
        } else if (hdr.ipv4.isValid()) {
            // No router passes these on, and some have no address of a host.
            if ((hdr.ipv4.protocol == IGMP && hdr.ipv4.dst[31:28] == GROUPS)
                || hdr.ipv4.dst[31:8] == LOCAL_NETWORK_CONTROL || hdr.ipv4.dst == BROADCAST) {
                meta.reason = LINK_LOCAL;
            } else if (!trusted && hdr.ipv4.src != address) {
                meta.reason = FORGED_ADDRESS;
            }
        }
    }
}
