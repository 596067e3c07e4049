// Forwards ARP and IPv6 by Ethernet address: to the port of a host or, if the address is a group address, to
// all ports of a tree.

control bridge(inout headers_t hdr, inout metadata_t meta) {
    action send_to_ports(ports_t ports) {
        meta.ports = ports;
    }

    action no_route() {
        meta.reason = NO_ROUTE;
    }

    table ethernet {
        key = {
            hdr.ethernet.dst: ternary @name("dst");
        }
        actions = {
            send_to_ports;
            @defaultonly no_route;
        }
        const default_action = no_route();
        size = ROUTES;
    }

    apply {
        ethernet.apply();
    }
}
