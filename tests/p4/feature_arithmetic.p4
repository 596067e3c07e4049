// Expressions: every operator on unsigned and signed numbers of odd widths, slices, joining, casts,
// the stack operations of headers, copies of headers, and their validity.

#include <core.p4>
#include <v1model.p4>

header input_t {
    bit<8> what;       // 1 push 1, 2 push 2, 3 pop 1, 4 pop 2, 5 copy, 6 swap, 7 remove, 8 whole stack
    bit<13> a;
    bit<13> b;
    bit<6> shift;
    int<8> c;
    int<8> d;
    bit<48> wide;
    bit<80> wider;
}

header output_t {
    bit<13> sum;
    bit<13> difference;
    bit<13> product;
    bit<13> saturated_sum;
    bit<13> saturated_difference;
    bit<13> conjunction;
    bit<13> disjunction;
    bit<13> exclusive;
    bit<13> complement;
    bit<13> negative;
    bit<13> left;
    bit<13> right;
    int<8> signed_sum;
    int<8> signed_difference;
    int<8> signed_product;
    int<8> signed_saturated_sum;
    int<8> signed_saturated_difference;
    int<8> signed_left;
    int<8> signed_right;
    bit<16> extended;
    bit<26> joined;
    bit<5> slice;
    bit<8> comparisons;
    bit<6> signed_comparisons;
    bit<13> chosen;
    bit<48> wide;
    bit<80> wider;
    bit<3> logic;
    bit<7> padding;
}

header cell_t {
    bit<8> value;
}

struct headers {
    output_t output;
    input_t input;
    cell_t[3] cells;
    cell_t[3] others;
    cell_t single;
}

struct metadata { }

bit<1> one(in bool value) {
    return value ? 1w1 : 1w0;
}

parser read(packet_in packet, out headers hdr, inout metadata meta,
            inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.input);
        packet.extract(hdr.cells.next);
        packet.extract(hdr.cells.next);
        packet.extract(hdr.single);
        transition accept;
    }
}

control check(inout headers hdr, inout metadata meta) {
    apply { }
}

control ingress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    apply {
        bit<13> a = hdr.input.a;
        bit<13> b = hdr.input.b;
        int<8> c = hdr.input.c;
        int<8> d = hdr.input.d;
        hdr.output.setValid();
        hdr.output.sum = a + b;
        hdr.output.difference = a - b;
        hdr.output.product = a * b;
        hdr.output.saturated_sum = a |+| b;
        hdr.output.saturated_difference = a |-| b;
        hdr.output.conjunction = a & b;
        hdr.output.disjunction = a | b;
        hdr.output.exclusive = a ^ b;
        hdr.output.complement = ~a;
        hdr.output.negative = -a;
        hdr.output.left = a << hdr.input.shift;
        hdr.output.right = a >> hdr.input.shift;
        hdr.output.signed_sum = c + d;
        hdr.output.signed_difference = c - d;
        hdr.output.signed_product = c * d;
        hdr.output.signed_saturated_sum = c |+| d;
        hdr.output.signed_saturated_difference = c |-| d;
        hdr.output.signed_left = c << 2;
        hdr.output.signed_right = c >> 3;
        hdr.output.extended = (bit<16>) (int<16>) c;
        hdr.output.joined = b ++ a;
        hdr.output.slice = a[8:4];
        hdr.output.comparisons = one(a == b) ++ one(a != b) ++ one(a < b) ++ one(a <= b) ++
            one(a > b) ++ one(a >= b) ++ one((bit<6>) a == hdr.input.shift) ++ one(a[12:12] == 1);
        hdr.output.signed_comparisons = one(c == d) ++ one(c != d) ++ one(c < d) ++ one(c <= d) ++
            one(c > d) ++ one(c >= d);
        hdr.output.chosen = a < b ? a : b + 1;
        hdr.output.wide = hdr.input.wide + 0xffffffffffff;
        hdr.output.wide[23:8] = (bit<16>) a;
        hdr.output.wider = (hdr.input.wider << 40) | (hdr.input.wider >> 40);
        hdr.output.logic = one(a > 100 && b > 100) ++ one(a > 100 || b > 100) ++ one(!(a > 100));
        standard.egress_spec = 2;
        if (hdr.input.what == 1) {
            hdr.cells.push_front(1);
            hdr.cells[0].setValid();
            hdr.cells[0].value = 0x11;
        } else if (hdr.input.what == 2) {
            hdr.cells.push_front(2);
            hdr.cells[1].setValid();
            hdr.cells[1].value = 0x22;
        } else if (hdr.input.what == 3) {
            hdr.cells.pop_front(1);
        } else if (hdr.input.what == 4) {
            hdr.cells.pop_front(2);
        } else if (hdr.input.what == 5) {
            hdr.cells[2] = hdr.single;
        } else if (hdr.input.what == 6) {
            cell_t kept = hdr.cells[0];
            hdr.cells[0] = hdr.cells[2];
            hdr.single = kept;
        } else if (hdr.input.what == 7) {
            hdr.single.setInvalid();
            if (hdr.cells[0].isValid() && !hdr.single.isValid() && a > 100) {
                hdr.cells[1].value = 0x77;
            }
        } else if (hdr.input.what == 8) {
            hdr.others = hdr.cells;
        } else if (hdr.input.what == 9) {
            return;
        } else if (hdr.input.what == 10) {
            exit;
        }
        hdr.input.what = hdr.input.what + 0x80;
    }
}

control egress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    apply {
        hdr.input.shift = hdr.input.shift + 1;
    }
}

control compute(inout headers hdr, inout metadata meta) {
    apply { }
}

control write(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.output);
        packet.emit(hdr.input);
        packet.emit(hdr.cells);
        packet.emit(hdr.others);
        packet.emit(hdr.single);
    }
}

V1Switch(read(), check(), ingress(), egress(), compute(), write()) main;
