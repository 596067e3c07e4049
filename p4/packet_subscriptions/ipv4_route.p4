// Routes all other traffic.
control ipv4_route(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    action send(port_t port) {
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        standard_metadata.egress_spec = port;
    }
    action deliver(bit<48> mac, port_t port) {
        hdr.ethernet.dst = mac;
        send(port);
    }
    action drop() {
        meta.reason = NO_ROUTE;
    }

    @name("ipv4")
    table ipv4_rows {
        key = {
            hdr.ipv4.dst : lpm @name("dst");
        }
        actions = {
            send;
            deliver;
            drop;
        }
        const default_action = drop();
        size = ROUTES;
    }

    apply {
        if (!hdr.ipv4.isValid()) {
            meta.reason = NOT_IPV4;
        } else if (hdr.ipv4.length < meta.header_bytes
            || (bit<32>) hdr.ipv4.length > standard_metadata.packet_length - ETHERNET_BYTES) {
            meta.reason = CUT_SHORT;
        } else if (hdr.ipv4.ttl <= 1) {
            meta.reason = TTL_OVER;
        } else {
            ipv4_rows.apply();
        }
    }
}
