// Ethernet, then a stack of labels or IPv4.

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
        transition select(hdr.ipv4.version, hdr.ipv4.ihl) {
            (4, 6 .. 15): options;
            default: accept;
        }
    }

    state options {
        packet.extract(hdr.options, (bit<32>) (hdr.ipv4.ihl - WORDS) << 5);
        transition accept;
    }

    state stack {
        packet.extract(hdr.stack);
        transition select(standard.instance_type) {
            RECIRCULATED: taken_0;
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

    // The labels that no pass has looked at are in front: this one takes the next LABELS_A_PASS.
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
        transition select(standard.instance_type) {
            RECIRCULATED: accept;
            default: datagram;
        }
    }

    state datagram {
        meta.datagram = packet.lookahead<bit<32>>();
        transition accept;
    }
}
