// Header stacks, unions and fields of variable length: elements chosen at run time, push and pop,
// copies, comparisons, loops in actions, value sets.

#include <core.p4>
#include <v1model.p4>

header command_t {
    bit<8> operation;
    bit<8> index;
    bit<16> value;
    bit<8> count;      // of items
    bit<8> kinds;      // of options
}

header item_t {
    bit<16> value;
}

header option_kind_t {
    bit<8> kind;
}

header short_t {
    bit<8> kind;
    bit<8> value;
}

header long_t {
    bit<8> kind;
    bit<8> length;
    varbit<64> value;
}

header_union option_t {
    short_t small;
    long_t large;
}

struct headers {
    command_t command;
    item_t[4] items;
    item_t[4] spare;
    option_t[3] options;
}

struct metadata {
    bit<8> items;
    bit<8> options;
}

parser read(packet_in packet, out headers hdr, inout metadata meta,
            inout standard_metadata_t standard) {
    value_set<bit<8>>(4) large_kinds;

    state start {
        packet.extract(hdr.command);
        meta.items = hdr.command.count;
        meta.options = hdr.command.kinds;
        transition next_item;
    }
    state next_item {
        transition select(meta.items) {
            0: next_option;
            default: item;
        }
    }
    state item {
        packet.extract(hdr.items.next);
        meta.items = meta.items - 1;
        transition next_item;
    }
    state next_option {
        transition select(meta.options) {
            0: accept;
            default: option;
        }
    }
    state option {
        meta.options = meta.options - 1;
        transition select(packet.lookahead<bit<8>>()) {
            large_kinds: large;
            0 .. 9: small;
        }
    }
    state small {
        packet.extract(hdr.options.next.small);
        transition next_option;
    }
    state large {
        packet.extract(hdr.options.next.large, (bit<32>) (bit<16>) packet.lookahead<bit<16>>()[7:0] * 8);
        transition next_option;
    }
}

control check(inout headers hdr, inout metadata meta) {
    apply { }
}

control ingress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    action assign_at() {
        hdr.items[hdr.command.index].value = hdr.command.value;
    }
    action take_from() {
        hdr.command.value = hdr.items[hdr.command.index].value;
    }
    action hide() {
        hdr.items[hdr.command.index].setInvalid();
    }
    action show() {
        hdr.items[hdr.command.index].setValid();
    }
    action add_all() {
        bit<16> sum = 0;
        for (bit<8> i = 0; i < 4; i = i + 1) {
            if (hdr.items[i].isValid()) {
                sum = sum + hdr.items[i].value;
            }
        }
        hdr.command.value = sum;
    }
    action count_down() {
        bit<16> steps = 0;
        for (bit<16> left = hdr.command.value; left > 1;
             left = (left[0:0] == 0 ? left >> 1 : left - 1)) {
            steps = steps + 1;
        }
        hdr.command.value = steps;
    }

    apply {
        standard.egress_spec = 1;
        if (standard.parser_error != error.NoError) {
            hdr.command.operation = 0xff;
            hdr.command.index = (bit<8>) (bit<1>) (standard.parser_error == error.PacketTooShort)
                | ((bit<8>) (bit<1>) (standard.parser_error == error.StackOutOfBounds) << 1)
                | ((bit<8>) (bit<1>) (standard.parser_error == error.NoMatch) << 2)
                | ((bit<8>) (bit<1>) (standard.parser_error == error.HeaderTooShort) << 3);
        } else if (hdr.command.operation == 1) {
            hdr.items.push_front(1);
        } else if (hdr.command.operation == 2) {
            hdr.items.push_front(3);
        } else if (hdr.command.operation == 3) {
            hdr.items.pop_front(1);
        } else if (hdr.command.operation == 4) {
            hdr.items.pop_front(3);
        } else if (hdr.command.operation == 5) {
            assign_at();
        } else if (hdr.command.operation == 6) {
            take_from();
        } else if (hdr.command.operation == 7) {
            hide();
        } else if (hdr.command.operation == 8) {
            show();
        } else if (hdr.command.operation == 9) {
            hdr.spare = hdr.items;
        } else if (hdr.command.operation == 10) {
            hdr.spare[0] = hdr.items[hdr.command.index];
        } else if (hdr.command.operation == 11) {
            hdr.command.value = (bit<16>) (bit<1>) (hdr.items[0] == hdr.items[1]);
        } else if (hdr.command.operation == 12) {
            add_all();
        } else if (hdr.command.operation == 13) {
            count_down();
        } else if (hdr.command.operation == 14) {
            hdr.items[0].setValid();
            hdr.items[0].value = hdr.command.value;
        } else if (hdr.command.operation == 15) {
            if (hdr.options[0].isValid()) {
                hdr.command.value = 1;
            }
            if (hdr.options[0].large.isValid()) {
                hdr.command.value = hdr.command.value + 2;
            }
        } else if (hdr.command.operation == 16) {
            hdr.options[0].small.setValid();
            hdr.options[0].small.kind = 7;
            hdr.options[0].small.value = 9;
        }
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
        packet.emit(hdr.command);
        packet.emit(hdr.items);
        packet.emit(hdr.spare);
        packet.emit(hdr.options);
    }
}

V1Switch(read(), check(), ingress(), egress(), compute(), write()) main;
