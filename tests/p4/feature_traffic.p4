// What becomes of a frame after ingress and after egress: every request that a program can make of
// the traffic manager, in any combination.
//
// A frame says what to do, in three bytes of flags: `ingress` when it comes from a port, `egress`
// for its copies, `again` for ingress on a later pass. Each run of egress puts a header in front
// that says what the program saw, so that a frame that leaves tells its whole way.
//
//   requests (14) | seen[count] (21 each, the newest first) | payload

#include <core.p4>
#include <v1model.p4>

const bit<8> CLONE = 0x01;          // clone, no metadata kept
const bit<8> CLONE_KEEPING = 0x02;  // clone, keeping field list 1 (both: the last one counts)
const bit<8> PASS = 0x04;           // ingress: resubmit; egress: recirculate; nothing kept
const bit<8> PASS_KEEPING = 0x08;   // the same, keeping field list 2
const bit<8> MULTICAST = 0x10;      // ingress only
const bit<8> DROP = 0x20;
const bit<8> MULTICAST_LATE = 0x40; // ingress, after DROP; egress: one header more
const bit<8> TRUNCATE = 0x80;

header requests_t {
    bit<8> left;     // runs of egress that may still clone or recirculate
    bit<8> ingress;
    bit<8> egress;
    bit<8> again;
    bit<16> port;
    bit<16> group;
    bit<16> session;
    bit<16> size;    // of a truncated copy
    bit<8> padding;
    bit<8> count;
}

header seen_t {
    bit<8> ingress_type;     // as ingress saw them; of a clone: what was kept
    bit<16> ingress_length;
    bit<16> ingress_from;
    bit<8> kept;             // in both field lists
    bit<8> listed;           // in field list 2 only
    bit<8> instance_type;
    bit<16> ingress_port;
    bit<16> egress_port;
    bit<16> egress_rid;
    bit<16> packet_length;
    bit<16> egress_spec;
    bit<16> mcast_grp;
    bit<8> parser_error;
}

header filler_t {
    bit<24> bytes;
}

struct headers {
    filler_t filler;
    requests_t requests;
    seen_t[24] seen;
}

struct metadata {
    @field_list(1, 2)
    bit<8> kept;
    @field_list(2)
    bit<8> listed;
    bit<8> ingress_type;
    @field_list(2)
    bit<16> ingress_length;
    @field_list(1)
    bit<16> ingress_from;
    bit<8> remaining;
}

parser read(packet_in packet, out headers hdr, inout metadata meta,
            inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.requests);
        meta.remaining = hdr.requests.count;
        transition more;
    }
    state more {
        transition select(meta.remaining) {
            0: accept;
            default: one;
        }
    }
    state one {
        packet.extract(hdr.seen.next);
        meta.remaining = meta.remaining - 1;
        transition more;
    }
}

control check(inout headers hdr, inout metadata meta) {
    apply { }
}

control ingress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    bit<8> flags;

    apply {
        meta.kept = meta.kept + 1;
        meta.listed = meta.listed + 16;
        meta.ingress_type = (bit<8>) standard.instance_type;
        meta.ingress_length = (bit<16>) standard.packet_length;
        meta.ingress_from = (bit<16>) standard.ingress_port;
        flags = hdr.requests.ingress;
        if (standard.instance_type != 0) {
            flags = hdr.requests.again;
        }
        hdr.requests.padding = hdr.requests.padding + 1;
        standard.egress_spec = (bit<9>) hdr.requests.port;
        if (flags & MULTICAST != 0) {
            standard.mcast_grp = hdr.requests.group;
        }
        if (flags & CLONE != 0) {
            clone(CloneType.I2E, (bit<32>) hdr.requests.session);
        }
        if (flags & CLONE_KEEPING != 0) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>) hdr.requests.session, 1);
        }
        // A resubmitted frame is the same frame again: only what is kept of it can end that.
        if (standard.instance_type != 6) {
            if (flags & PASS != 0) {
                resubmit_preserving_field_list(0);
            }
            if (flags & PASS_KEEPING != 0) {
                resubmit_preserving_field_list(2);
            }
        }
        if (flags & DROP != 0) {
            mark_to_drop(standard);
        }
        if (flags & MULTICAST_LATE != 0) {
            standard.mcast_grp = hdr.requests.group;
        }
        if (flags & TRUNCATE != 0) {
            truncate((bit<32>) hdr.requests.size);
        }
        meta.kept = meta.kept + 2;
    }
}

control egress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard) {
    apply {
        bit<8> flags = hdr.requests.egress;
        bit<16> length = (bit<16>) standard.packet_length;
        bit<16> spec = (bit<16>) standard.egress_spec;
        if (hdr.requests.left == 0) {
            flags = flags & (DROP | MULTICAST_LATE | TRUNCATE);
        } else {
            hdr.requests.left = hdr.requests.left - 1;
        }
        if (flags & MULTICAST_LATE != 0) {
            hdr.filler.setValid();
            hdr.filler.bytes = 0xabcdef;
        }
        hdr.seen.push_front(1);
        hdr.seen[0].setValid();
        hdr.requests.count = hdr.requests.count + 1;
        hdr.seen[0].ingress_type = meta.ingress_type;
        hdr.seen[0].ingress_length = meta.ingress_length;
        hdr.seen[0].ingress_from = meta.ingress_from;
        hdr.seen[0].kept = meta.kept;
        hdr.seen[0].listed = meta.listed;
        hdr.seen[0].instance_type = (bit<8>) standard.instance_type;
        hdr.seen[0].ingress_port = (bit<16>) standard.ingress_port;
        hdr.seen[0].egress_port = (bit<16>) standard.egress_port;
        hdr.seen[0].egress_rid = standard.egress_rid;
        hdr.seen[0].packet_length = length;
        hdr.seen[0].egress_spec = spec;
        hdr.seen[0].mcast_grp = standard.mcast_grp;
        hdr.seen[0].parser_error = (bit<8>) (bit<1>) (standard.parser_error != error.NoError);
        if (flags & CLONE != 0) {
            clone(CloneType.E2E, (bit<32>) hdr.requests.session);
        }
        if (flags & CLONE_KEEPING != 0) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>) hdr.requests.session, 1);
        }
        if (flags & PASS != 0) {
            recirculate_preserving_field_list(0);
        }
        if (flags & PASS_KEEPING != 0) {
            recirculate_preserving_field_list(2);
        }
        // A clone of a clone, and what recirculates, is never dropped here: else nothing leaves.
        if (flags & DROP != 0 && (standard.instance_type == 0 || standard.instance_type == 5)) {
            mark_to_drop(standard);
        }
        if (flags & TRUNCATE != 0) {
            truncate((bit<32>) hdr.requests.size);
        }
        meta.kept = meta.kept + 4;
    }
}

control compute(inout headers hdr, inout metadata meta) {
    apply { }
}

control write(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.requests);
        packet.emit(hdr.seen);
        packet.emit(hdr.filler);
    }
}

V1Switch(read(), check(), ingress(), egress(), compute(), write()) main;
