// Control flow and what else a pipeline has: exit, return, switch over an action that ran, hit and
// miss, conditions within actions, hashes, chance, meters, assertions, messages, digests.

#include <core.p4>
#include <v1model.p4>

header command_t {
    bit<8> operation;
    bit<8> first;
    bit<8> second;
    bit<8> trace;      // a bit for each place that was passed
    bit<32> value;
}

struct headers {
    command_t command;
}

struct metadata {
    bit<2> color;
}

struct noted_t {
    bit<8> first;
    bit<32> value;
}

parser read(packet_in packet, out headers hdr, inout metadata meta,
            inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.command);
        transition accept;
    }
}

control check(inout headers hdr, inout metadata meta) {
    apply { }
}

control ingress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    meter(4, MeterType.packets) rates;
    direct_counter(CounterType.packets_and_bytes) taken;
    counter(8, CounterType.packets) seen;

    action note(bit<8> place) {
        hdr.command.trace = hdr.command.trace | place;
    }
    action leave() {
        note(1);
        exit;
    }
    action compare() {
        if (hdr.command.first < hdr.command.second) {
            if (hdr.command.first == 0) {
                hdr.command.value = 1;
            } else {
                hdr.command.value = 2;
            }
        } else if (hdr.command.first == hdr.command.second) {
            hdr.command.value = 3;
        } else {
            hdr.command.value = 4;
        }
        note(2);
    }
    action one() { taken.count(); }
    action two(bit<32> value) { hdr.command.value = value; taken.count(); }
    action three() { note(4); taken.count(); }

    table choose {
        key = { hdr.command.first: exact; }
        actions = { one; two; three; NoAction; }
        default_action = NoAction();
        counters = taken;
        size = 16;
    }
    table known {
        key = { hdr.command.second: ternary; }
        actions = { note; NoAction; }
        const default_action = NoAction();
    }

    apply {
        standard.egress_spec = 1;
        if (hdr.command.isValid()) {
            if (hdr.command.operation == 1) {
                leave();
            } else if (hdr.command.operation == 2) {
                compare();
            } else if (hdr.command.operation == 3) {
                switch (choose.apply().action_run) {
                    one: { note(8); }
                    two:
                    three: { note(16); }
                    default: { note(32); }
                }
            } else if (hdr.command.operation == 4) {
                if (known.apply().hit) {
                    note(64);
                    return;
                }
                note(32);
            } else if (hdr.command.operation == 5) {
                hash(hdr.command.value, HashAlgorithm.crc32, 32w0, {hdr.command.first, hdr.command.second}, 32w0xffffffff);
            } else if (hdr.command.operation == 6) {
                hash(hdr.command.value, HashAlgorithm.crc16, 32w10, {hdr.command.first, hdr.command.second}, 32w100);
            } else if (hdr.command.operation == 7) {
                random(hdr.command.value, 5, 9);
            } else if (hdr.command.operation == 8) {
                rates.execute_meter((bit<32>) hdr.command.first, meta.color);
                hdr.command.value = (bit<32>) meta.color;
            } else if (hdr.command.operation == 9) {
                assert(hdr.command.first != 7);
                log_msg("first is {}", {hdr.command.first});
                note(4);
            } else if (hdr.command.operation == 10) {
                digest<noted_t>(1, {hdr.command.first, hdr.command.value});
            } else if (hdr.command.operation == 11) {
                seen.count((bit<32>) hdr.command.first);
            } else if (hdr.command.operation == 12) {
                hash(hdr.command.value, HashAlgorithm.xor16, 32w0, {hdr.command.first, hdr.command.second, hdr.command.trace}, 32w0x10000);
            } else if (hdr.command.operation == 13) {
                hash(hdr.command.value, HashAlgorithm.identity, 32w0, {hdr.command.first, hdr.command.second}, 32w0xffffffff);
            } else if (hdr.command.operation == 14) {
                hdr.command.value = (bit<32>) standard.packet_length;
            } else if (hdr.command.operation == 15) {
                hdr.command.value = (bit<32>) standard.ingress_global_timestamp;
            }
        }
        note(128);
    }
}

control egress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    apply { }
}

control compute(inout headers hdr, inout metadata meta) {
    apply { }
}

control write(packet_out packet, in headers hdr) {
    apply { packet.emit(hdr.command); }
}

V1Switch(read(), check(), ingress(), egress(), compute(), write()) main;
