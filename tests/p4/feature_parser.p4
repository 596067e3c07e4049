// What a parser can do: select by value, mask, range and value set, look ahead, advance, fill header
// stacks, extract a header of variable length, verify, and fail in each of the ways it can.
//
// The first byte says which way to go; where no case fits, BMv2 accepts, and reports no error. What was parsed leaves again, behind a header `result` that
// names the error and how far the parser came.

#include <core.p4>
#include <v1model.p4>

error {
    WrongSum
}

header choice_t {
    bit<8> way;
}

header result_t {
    bit<8> error_code;   // 0 none, 1 too short, 3 stack full, 4 header too short, 5 WrongSum
    bit<8> steps;
    bit<16> looked_at;
    bit<16> length;
}

header item_t {
    bit<1> last;
    bit<7> value;
}

header triple_t {
    bit<3> a;
    bit<10> b;
    bit<11> c;
}

header variable_t {
    bit<8> size;         // bytes of body
    varbit<64> body;
}

header pair_t {
    bit<8> one;
    bit<8> two;
}

struct headers {
    result_t result;
    choice_t choice;
    item_t[4] items;
    triple_t triple;
    variable_t variable;
    pair_t pair;
    pair_t other;
}

struct metadata {
    bit<8> steps;
    bit<16> looked_at;
}

parser read(packet_in packet, out headers hdr, inout metadata meta,
            inout standard_metadata_t standard) {
    value_set<bit<8>>(4) members;

    state start {
        packet.extract(hdr.choice);
        meta.steps = 1;
        transition select(hdr.choice.way) {
            0: accept;
            1: items;
            2: look;
            3: skip;
            4: body;
            5: sum;
            6: two_keys;
            7: last_item;
            0x10 &&& 0xf0: triple;
            0x20 .. 0x2f: pair;
            members: other;
        }
    }
    state items {
        packet.extract(hdr.items.next);
        meta.steps = meta.steps + 1;
        transition select(hdr.items.last.last) {
            0: items;
            1: accept;
        }
    }
    state look {
        meta.looked_at = packet.lookahead<bit<16>>();
        meta.steps = (bit<8>) (packet.lookahead<bit<12>>() >> 4);
        transition select(packet.lookahead<pair_t>().two) {
            0x00 .. 0x7f: pair;
            default: accept;
        }
    }
    state skip {
        bit<8> far = packet.lookahead<bit<8>>();
        packet.advance((bit<32>) far * 8);
        transition pair;
    }
    state body {
        bit<8> size = packet.lookahead<bit<8>>();
        packet.extract(hdr.variable, (bit<32>) size * 8);
        transition pair;
    }
    state sum {
        packet.extract(hdr.pair);
        verify(hdr.pair.one + hdr.pair.two == 0xff, error.WrongSum);
        meta.steps = meta.steps + 1;
        transition other;
    }
    state two_keys {
        packet.extract(hdr.pair);
        transition select(hdr.pair.one, hdr.pair.two) {
            (1, 2): accept;
            (1, _): other;
            (0x80 &&& 0x80, 0x10 .. 0x1f): triple;
            (_, 0): accept;
        }
    }
    state last_item {
        packet.extract(hdr.items.next);
        packet.extract(hdr.items.next);
        packet.extract(hdr.items[2]);
        transition select(hdr.items[0].value, hdr.items[2].value) {
            (1, 1): pair;
            (_, _): accept;
        }
    }
    state triple {
        packet.extract(hdr.triple);
        meta.steps = meta.steps + 1;
        transition select(hdr.triple.b[9:8] ++ hdr.triple.a[0:0]) {
            3w7: pair;
            default: accept;
        }
    }
    state pair {
        packet.extract(hdr.pair);
        meta.steps = meta.steps + 1;
        transition accept;
    }
    state other {
        packet.extract(hdr.other);
        meta.steps = meta.steps + 1;
        transition accept;
    }
}

control check(inout headers hdr, inout metadata meta) {
    apply { }
}

control ingress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    apply {
        hdr.result.setValid();
        hdr.result.steps = meta.steps;
        hdr.result.looked_at = meta.looked_at;
        hdr.result.length = (bit<16>) standard.packet_length;
        if (standard.parser_error == error.PacketTooShort) {
            hdr.result.error_code = 1;
        } else if (standard.parser_error == error.StackOutOfBounds) {
            hdr.result.error_code = 3;
        } else if (standard.parser_error == error.HeaderTooShort) {
            hdr.result.error_code = 4;
        } else if (standard.parser_error == error.WrongSum) {
            hdr.result.error_code = 5;
        }
        standard.egress_spec = 2;
    }
}

control egress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    apply { }
}

control compute(inout headers hdr, inout metadata meta) {
    apply { }
}

control write(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.result);
        packet.emit(hdr.choice);
        packet.emit(hdr.items);
        packet.emit(hdr.triple);
        packet.emit(hdr.variable);
        packet.emit(hdr.pair);
        packet.emit(hdr.other);
    }
}

V1Switch(read(), check(), ingress(), egress(), compute(), write()) main;
