// Parses Ethernet and IPv4, and also UDP if the datagram may be a state message.

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

    // Initializes the metadata of a frame that has just arrived.
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

    // A fragment is not a message, because its IPv4 header may be followed by arbitrary data.
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
