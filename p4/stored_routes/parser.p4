// Parses Ethernet, and a label stack or IPv4.

parser frame_parser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    state start {
        meta.fresh = 0;
        transition select(standard.instance_type, meta.inside) {
            (RECIRCULATED, 0): ethernet;
            (RECIRCULATED, 1): anew;
            default: arrived;
        }
    }

    state arrived {
        meta.ingress_port = standard.ingress_port;
        transition anew;
    }

    // Initializes the metadata of a frame that has just arrived or has left a tunnel.
    state anew {
        meta.fresh = 1;
        meta.inside = 0;
        meta.unexamined = 0;
        meta.ports = 0;
        meta.along = 0;
        meta.stored = 0;
        meta.uneven = 0;
        meta.cut = 0;
        meta.own = 1;
        meta.under = 0;
        transition ethernet;
    }

    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type_) {
            STACK: stack;
            IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.protocol) {
            (4, 5, UDP): udp;
            (4, 6 .. 15, _): options;
            default: accept;
        }
    }

    state options {
        packet.extract(hdr.options, (bit<32>) (hdr.ipv4.ihl - WORDS) << 5);
        transition accept;
    }

    // A datagram that is too short for UDP is left to the receiver.
    state udp {
        transition select(hdr.ipv4.length) {
            OUTER_BYTES .. 0xffff: ports;
            default: accept;
        }
    }

    state ports {
        packet.extract(hdr.udp);
        transition accept;
    }

    state stack {
        packet.extract(hdr.stack);
        meta.announced = hdr.stack.num_entries;
        transition select(meta.fresh) {
            0: taken_0;
            default: counted;
        }
    }

    state counted {
        meta.unexamined = hdr.stack.num_entries;
        transition select(hdr.stack.num_entries) {
            1 .. MAX_LABELS: taken_0;
            default: accept;
        }
    }

    // The unexamined labels are at the front. This pass examines the next LABELS_A_PASS labels.
    EACH_POSITION(TAKE_LABEL)

    state TAKEN(LABELS_A_PASS) {
        meta.later = hdr.stack.num_entries - LABELS_A_PASS;
        meta.unexamined = meta.unexamined - LABELS_A_PASS;
        transition others;
    }

    state last_pass {
        meta.later = hdr.stack.num_entries - meta.unexamined;
        meta.unexamined = 0;
        transition others;
    }

    state others {
        packet.extract(hdr.later, (bit<32>) meta.later << LABEL_BITS_SHIFT);
        transition select(meta.fresh) {
            0: accept;
            default: datagram;
        }
    }

    state datagram {
        meta.datagram = packet.lookahead<bit<32>>();
        transition accept;
    }
}
