// What outlives a frame, and what depends on more than the frame: registers, counters, a meter,
// hashes, random numbers, timestamps, digests.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> what;       // bit 0 write register, 1 digest, 2 random, 3 time, 4 drop, 5 signed register
    bit<8> index;
    bit<32> value;
}

header reply_t {
    bit<32> before;    // of the register
    bit<32> after;
    int<13> signed_value;
    bit<3> color;
    bit<16> crc16_value;
    bit<32> crc32_value;
    bit<16> csum16_value;
    bit<16> identity_value;
    bit<16> xor_value;
    bit<16> limited;
    bit<8> random_value;
    bit<8> time_ok;
}

struct note_t {
    bit<8> index;
    bit<32> value;
}

struct headers {
    reply_t reply;
    request_t request;
}

struct metadata { }

parser read(packet_in packet, out headers hdr, inout metadata meta,
            inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        transition accept;
    }
}

control check(inout headers hdr, inout metadata meta) {
    apply { }
}

control ingress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    register<bit<32>>(16) cells;
    register<int<13>>(4) signed_cells;
    counter(16, CounterType.packets_and_bytes) frames;
    counter(16, CounterType.packets) frames_alone;
    counter(16, CounterType.bytes) bytes_alone;
    meter(4, MeterType.packets) rate;

    apply {
        hdr.reply.setValid();
        standard.egress_spec = 2;
        cells.read(hdr.reply.before, (bit<32>) hdr.request.index);
        if (hdr.request.what & 1 != 0) {
            cells.write((bit<32>) hdr.request.index, hdr.request.value + hdr.reply.before);
        }
        cells.read(hdr.reply.after, (bit<32>) hdr.request.index);
        frames.count((bit<32>) hdr.request.index);
        frames_alone.count((bit<32>) hdr.request.index);
        bytes_alone.count((bit<32>) hdr.request.index);
        rate.execute_meter((bit<32>) 0, hdr.reply.color);
        hash(hdr.reply.crc16_value, HashAlgorithm.crc16, (bit<16>) 0,
             { hdr.request.index, hdr.request.value }, (bit<32>) 65536);
        hash(hdr.reply.crc32_value, HashAlgorithm.crc32, (bit<32>) 0,
             { hdr.request.index, hdr.request.value }, (bit<64>) 0x100000000);
        hash(hdr.reply.csum16_value, HashAlgorithm.csum16, (bit<16>) 0,
             { hdr.request.index, hdr.request.value }, (bit<32>) 65536);
        hash(hdr.reply.identity_value, HashAlgorithm.identity, (bit<16>) 0,
             { hdr.request.value[15:0] }, (bit<32>) 65536);
        hash(hdr.reply.xor_value, HashAlgorithm.xor16, (bit<16>) 0,
             { hdr.request.value }, (bit<32>) 65536);
        hash(hdr.reply.limited, HashAlgorithm.crc32, (bit<16>) 100,
             { hdr.request.value }, (bit<16>) 7);
        if (hdr.request.what & 2 != 0) {
            digest<note_t>(1, { hdr.request.index, hdr.request.value });
        }
        if (hdr.request.what & 4 != 0) {
            random(hdr.reply.random_value, 8w10, 8w13);
        }
        if (hdr.request.what & 8 != 0) {
            if (standard.ingress_global_timestamp > 0) {
                hdr.reply.time_ok = 1;
            }
        }
        if (hdr.request.what & 16 != 0) {
            mark_to_drop(standard);
        }
        if (hdr.request.what & 32 != 0) {
            signed_cells.read(hdr.reply.signed_value, (bit<32>) hdr.request.index);
            hdr.reply.signed_value = hdr.reply.signed_value - 1000;
            signed_cells.write((bit<32>) hdr.request.index, hdr.reply.signed_value);
        }
    }
}

control egress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    counter(512, CounterType.packets_and_bytes) sent;

    apply {
        sent.count((bit<32>) standard.egress_port);
        if (hdr.request.what & 8 != 0) {
            if (standard.egress_global_timestamp >= standard.ingress_global_timestamp) {
                hdr.reply.time_ok = hdr.reply.time_ok + 1;
            }
        }
    }
}

control compute(inout headers hdr, inout metadata meta) {
    apply { }
}

control write(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.reply);
        packet.emit(hdr.request);
    }
}

V1Switch(read(), check(), ingress(), egress(), compute(), write()) main;
