// Tables: exact, lpm, ternary, range and optional keys, priorities, hit and miss, which action ran,
// constant entries, default actions, direct counters.
//
// The keys arrive in a header; what each table answered leaves in another in front of it.

#include <core.p4>
#include <v1model.p4>

header keys_t {
    bit<8> which;      // bit i: apply table i
    bit<16> one;
    bit<16> two;
    bit<32> address;
}

header answers_t {
    bit<16> exact_answer;
    bit<16> lpm_answer;
    bit<16> ternary_answer;
    bit<16> range_answer;
    bit<16> optional_answer;
    bit<16> constant_answer;
    bit<16> prefix_answer;
    bit<8> hits;       // bit i: table i hit
    bit<8> ran;
}

struct headers {
    answers_t answers;
    keys_t keys;
}

struct metadata { }

parser read(packet_in packet, out headers hdr, inout metadata meta,
            inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.keys);
        transition accept;
    }
}

control check(inout headers hdr, inout metadata meta) {
    apply { }
}

control ingress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) exact_used;

    action drop() {
        mark_to_drop(standard);
    }
    action answer_exact(bit<16> number) {
        hdr.answers.exact_answer = number;
    }
    action answer_lpm(bit<16> number) {
        hdr.answers.lpm_answer = number;
    }
    action answer_ternary(bit<16> number) {
        hdr.answers.ternary_answer = number;
    }
    action answer_range(bit<16> number) {
        hdr.answers.range_answer = number;
    }
    action answer_optional(bit<16> number) {
        hdr.answers.optional_answer = number;
    }
    action answer_constant(bit<16> number) {
        hdr.answers.constant_answer = number;
    }
    action answer_prefix(bit<16> number) {
        hdr.answers.prefix_answer = number;
    }
    action leave() {
        exit;
    }

    table by_value {
        key = {
            hdr.keys.one: exact;
            hdr.keys.two: exact;
        }
        actions = { answer_exact; drop; leave; NoAction; }
        default_action = answer_exact(0xdead);
        counters = exact_used;
        size = 64;
    }
    table by_prefix {
        key = {
            hdr.keys.one: exact;
            hdr.keys.address: lpm;
        }
        actions = { answer_lpm; drop; @defaultonly NoAction; }
        const default_action = NoAction;
        size = 64;
    }
    table by_mask {
        key = {
            hdr.keys.one: ternary;
            hdr.keys.address: lpm;
            hdr.keys.two: exact;
        }
        actions = { answer_ternary; drop; NoAction; }
        size = 64;
    }
    table by_range {
        key = {
            hdr.keys.one: range;
            hdr.keys.two: ternary;
        }
        actions = { answer_range; NoAction; }
        default_action = answer_range(0xbeef);
        size = 64;
    }
    table by_option {
        key = {
            hdr.keys.one: optional;
            hdr.keys.two: optional;
        }
        actions = { answer_optional; NoAction; }
        size = 64;
    }
    table fixed {
        key = {
            hdr.keys.one: range;
            hdr.keys.two: ternary;
        }
        actions = { answer_constant; NoAction; }
        const entries = {
            (1 .. 8, _): answer_constant(1);
            (6 .. 12, 0x0010 &&& 0x00f0): answer_constant(2);
            (9, 7): answer_constant(3);
            (_, 0xfe00 &&& 0xff00): answer_constant(4);
        }
    }
    table fixed_prefixes {
        key = {
            hdr.keys.address: lpm;
        }
        actions = { answer_prefix; }
        default_action = answer_prefix(9);
        const entries = {
            0x04000000 &&& 0xfc000000: answer_prefix(1);
            0x04000000 &&& 0xff000000: answer_prefix(2);
            0xf9000001: answer_prefix(3);
            _: answer_prefix(4);
        }
    }

    apply {
        hdr.answers.setValid();
        standard.egress_spec = 2;
        if (hdr.keys.which & 1 != 0) {
            if (by_value.apply().hit) {
                hdr.answers.hits = hdr.answers.hits | 1;
            }
        }
        if (hdr.keys.which & 2 != 0) {
            if (by_prefix.apply().miss) {
                hdr.answers.hits = hdr.answers.hits | 0x80;
            } else {
                hdr.answers.hits = hdr.answers.hits | 2;
            }
        }
        if (hdr.keys.which & 4 != 0) {
            switch (by_mask.apply().action_run) {
                answer_ternary: {
                    hdr.answers.ran = 1;
                }
                drop: {
                    hdr.answers.ran = 2;
                }
                default: {
                    hdr.answers.ran = 3;
                }
            }
        }
        if (hdr.keys.which & 8 != 0) {
            by_range.apply();
        }
        if (hdr.keys.which & 16 != 0) {
            by_option.apply();
        }
        if (hdr.keys.which & 32 != 0) {
            fixed.apply();
        }
        fixed_prefixes.apply();
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
        packet.emit(hdr.answers);
        packet.emit(hdr.keys);
    }
}

V1Switch(read(), check(), ingress(), egress(), compute(), write()) main;
