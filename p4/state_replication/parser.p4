// Ethernet, then IPv4, and UDP where it may be a message of a state.

parser frame_parser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    state start {
        transition select(standard.instance_type) {
            RECIRCULATED: ethernet;
            default: arrived;
        }
    }

    // What a frame takes along is not there yet.
    state arrived {
        meta.ingress_port = standard.ingress_port;
        meta.ports = 0;
        meta.acknowledged = 0;
#ifdef EMBEDDED_CONTROLLER
        transition select(standard.ingress_port) {
            CPU_PORT: from_controller;
            default: ethernet;
        }
    }

    state from_controller {
        packet.extract(hdr.packet_out);
#endif
        transition ethernet;
    }

    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type_) {
            IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.ihl) {
            (4, 5): transport;
            (4, 6 .. 15): options;
            default: accept;
        }
    }

    state options {
        packet.extract(hdr.options, (bit<32>) (hdr.ipv4.ihl - WORDS) << 5);
        transition transport;
    }

    // A fragment is no message: what is behind its header may be anything.
    state transport {
        transition select(
            hdr.ipv4.dst[31:24], hdr.ipv4.protocol, hdr.ipv4.flags[0:0], hdr.ipv4.offset
        ) {
            (PROTO_ID, UDP, 0, 0): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition accept;
    }
}
