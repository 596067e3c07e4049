// Parses Ethernet, and an event in one of the two encodings or IPv4.
//
// There is one state per attribute (KUNDEL III-E). All of them lead to a shared state, so that an encoding has
// 32 transitions instead of one from each attribute to each later attribute.

error {
    EmptyEvent,
    UnknownAttribute,
    IdTwice
}

parser frame_parser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    state start {
        meta.event = 0;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type_) {
            EVENT: event;
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

    state event {
        meta.event = 1;
        EACH_ATTRIBUTE(NO_VALUE)
        transition select(hdr.ethernet.dst) {
            BITMASKS: bitmask;
            default: id_pairs;
        }
    }

    // Pairs may have any order, but attribute 0 can only be the first one, because id 0 after a pair
    // means the end. A repeated id is an error, because its attribute would have two values.
    state id_pairs {
        packet.extract(hdr.first);
        meta.bitmask = 0;
        meta.next_id = hdr.first.id;
        transition select(hdr.first.id) {
            0: pair_0;
            default: later_pair;
        }
    }

    state next_pair {
        transition select(meta.next_id) {
            0: accept;
            default: later_pair;
        }
    }

    state later_pair {
        transition select(meta.next_id) {
            EACH_LATER_ATTRIBUTE(NEXT_PAIR)
            default: unknown_attribute;
        }
    }

    EACH_ATTRIBUTE(TAKE_PAIR)

    state unknown_attribute {
        verify(false, error.UnknownAttribute);
        transition accept;
    }

    state bitmask {
        packet.extract(hdr.bitmask);
        verify(hdr.bitmask.bitmask != 0, error.EmptyEvent);
        meta.bitmask = hdr.bitmask.bitmask;
        meta.left = hdr.bitmask.bitmask;
        transition next_value;
    }

    // Selects the lowest remaining bit. Each value clears its bit.
    state next_value {
        transition select(meta.left) {
            0: accept;
            EACH_ATTRIBUTE(NEXT_VALUE)
        }
    }

    EACH_ATTRIBUTE(TAKE_VALUE)
}
