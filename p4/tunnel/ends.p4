// The ends of tunnels. The egress port of a frame selects the tunnel that the frame enters. A datagram leaves a
// tunnel here if its source, destination and ingress port match an entry.

control leave_tunnel(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    // The frame in the tunnel is processed in a separate pass.
    action take_off() {
        meta.inside = 1;
        hdr.ethernet.setInvalid();
        hdr.ipv4.setInvalid();
        hdr.udp.setInvalid();
        standard.egress_spec = NOWHERE;
    }

    // Tunnels that end at this switch.
    table end {
        key = {
            standard.ingress_port: exact @name("port");
            hdr.ipv4.src: exact @name("src");
            hdr.ipv4.dst: exact @name("dst");
        }
        actions = {
            take_off;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = TUNNELS;
    }

    apply {
        // Fragments are not reassembled.
        if (
            hdr.udp.isValid() && hdr.udp.dst == TUNNEL_PORT
            && hdr.ipv4.flags[0:0] == 0 && hdr.ipv4.offset == 0
            && standard.checksum_error == 0
            && (bit<32>) hdr.ipv4.length <= standard.packet_length - ETHERNET_BYTES
        ) {
            end.apply();
        }
    }
}

control enter_tunnel(
    inout headers_t hdr,
    in metadata_t meta,
    in standard_metadata_t standard
) {
    bit<16> length = meta.length;

    // mac: MAC address of this end. next_hop: MAC address of the router or host behind the port.
    action put_on(bit<48> mac, bit<48> next_hop, bit<32> src, bit<32> dst) {
        hdr.outer_ethernet.setValid();
        hdr.outer_ethernet.dst = next_hop;
        hdr.outer_ethernet.src = mac;
        hdr.outer_ethernet.type_ = IPV4;
        hdr.outer_ipv4.setValid();
        hdr.outer_ipv4.version = 4;
        hdr.outer_ipv4.ihl = WORDS;
        hdr.outer_ipv4.tos = 0;
        hdr.outer_ipv4.length = length + OUTER_BYTES;
        hdr.outer_ipv4.id = 0;
        hdr.outer_ipv4.flags = DO_NOT_FRAGMENT;
        hdr.outer_ipv4.offset = 0;
        hdr.outer_ipv4.ttl = TIME_TO_LIVE;
        hdr.outer_ipv4.protocol = UDP;
        hdr.outer_ipv4.checksum = 0;
        hdr.outer_ipv4.src = src;
        hdr.outer_ipv4.dst = dst;
        hdr.outer_udp.setValid();
        hdr.outer_udp.src = TUNNEL_PORT;
        hdr.outer_udp.dst = TUNNEL_PORT;
        hdr.outer_udp.length = length + UDP_BYTES;
        hdr.outer_udp.checksum = 0;  // no checksum, because the inner datagram has a valid one
    }

    // Links that are tunnels.
    table link {
        key = {
            standard.egress_port: exact @name("port");
        }
        actions = {
            put_on;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = TUNNELS;
    }

    apply {
        if (hdr.stack.isValid()) {
            length = length
                - (bit<16>) TIMES_LABEL_BYTES(meta.announced - hdr.stack.num_entries);
        }
        link.apply();
    }
}
