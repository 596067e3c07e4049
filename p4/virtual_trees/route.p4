// Routes frames without a stack: plain IPv4, by the longest prefix that matches the destination.

#if PORTS == 512
// v1model drops frames that are sent directly to this port, so they are sent to the multicast group of the port.
const port_t LAST_PORT = 511;
const bit<16> LAST_GROUP = 0x3f40;
#endif

control route_ipv4(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    // Sends to the next switch. Switches do not have MAC addresses, so the frame keeps its addresses.
    action send(port_t port) {
        standard.egress_spec = port;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    // Sends to a host.
    action deliver(bit<48> mac, port_t port) {
        standard.egress_spec = port;
        hdr.ethernet.dst = mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    action no_route() {
        meta.reason = NO_ROUTE;
    }

    table ipv4 {
        key = {
            hdr.ipv4.dst: lpm @name("dst");
        }
        actions = {
            send;
            deliver;
            @defaultonly no_route;
        }
        const default_action = no_route();
        size = ROUTES;
    }

    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.version != 4 || hdr.ipv4.ihl < WORDS) {
            meta.reason = NOT_IPV4;
        } else if (standard.checksum_error == 1) {
            meta.reason = BAD_CHECKSUM;
        } else if (
            hdr.ipv4.length < (bit<16>) hdr.ipv4.ihl << 2
            || (bit<32>) hdr.ipv4.length > standard.packet_length - ETHERNET_BYTES
        ) {
            meta.reason = CUT_SHORT;
        } else if (hdr.ipv4.ttl <= 1) {
            meta.reason = TTL_OVER;
        } else {
            ipv4.apply();
#if PORTS == 512
            if (standard.egress_spec == LAST_PORT) {
                standard.egress_spec = 0;
                standard.mcast_grp = LAST_GROUP;
            }
#endif
        }
    }
}
