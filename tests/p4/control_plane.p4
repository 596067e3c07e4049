// A program with everything that a control plane can ask for: each kind of match, default actions
// that may and may not change, entries of the program's own, counters, registers, clones.
#include <core.p4>
#include <v1model.p4>

header label_t {
    bit<16> tag;
    bit<32> address;
    bit<12> wide;
    bit<4>  rest;
}

struct headers_t {
    label_t label;
}

struct metadata_t {
    bit<16> group;
}

parser read(packet_in packet, out headers_t headers, inout metadata_t meta,
            inout standard_metadata_t standard) {
    state start {
        packet.extract(headers.label);
        transition accept;
    }
}

control check(inout headers_t headers, inout metadata_t meta) {
    apply { }
}

control ingress(inout headers_t headers, inout metadata_t meta,
                inout standard_metadata_t standard) {
    counter(8, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.packets_and_bytes) used;
    register<bit<48>>(16) cells;

    action send(bit<9> port) { standard.egress_spec = port; }
    action spread(bit<16> group) { standard.mcast_grp = group; }
    action count(bit<32> index) { seen.count(index); }
    action lose() { mark_to_drop(standard); }
    action only_default() { meta.group = 1; }
    action only_entries() { meta.group = 2; }

    table exact_table {
        key = { headers.label.tag: exact @name("tag"); standard.ingress_port: exact @name("port"); }
        actions = { send; spread; @tableonly only_entries; @defaultonly only_default; NoAction; }
        size = 4;
    }
    table lpm_table {
        key = { headers.label.address: lpm @name("address"); }
        actions = { send; lose; }
        default_action = lose();
        counters = used;
        size = 64;
    }
    table ternary_table {
        key = {
            headers.label.tag: ternary @name("tag");
            headers.label.address: optional @name("address");
            headers.label.rest: exact @name("rest");
        }
        actions = { send; spread; lose; }
        const default_action = lose();
        size = 64;
    }
    table range_table {
        key = { headers.label.wide: range @name("wide"); headers.label.tag: lpm @name("tag"); }
        actions = { count; NoAction; }
        default_action = count(7);
        size = 64;
    }
    table const_table {
        key = { headers.label.rest: ternary @name("rest"); headers.label.wide: range @name("wide"); }
        actions = { send; lose; }
        const entries = {
            (1, _): send(1);
            (4 &&& 6, 5 .. 9): send(2);
            (_, _): lose();
        }
        default_action = lose();
    }
    table const_exact {
        key = { headers.label.rest: exact @name("rest"); headers.label.tag: lpm @name("tag"); }
        actions = { send; lose; }
        const entries = {
            (1, 0x1200 &&& 0xff00): send(3);
            (2, _): lose();
        }
    }
    table started_table {
        key = { headers.label.tag: exact @name("tag"); }
        actions = { send; lose; NoAction; }
        entries = {
            0x10: send(4);
            const 0x11: lose();
        }
        size = 8;
    }
    table keyless {
        actions = { send; NoAction; }
        default_action = NoAction();
    }

    apply {
        exact_table.apply();
        lpm_table.apply();
        ternary_table.apply();
        range_table.apply();
        const_table.apply();
        const_exact.apply();
        started_table.apply();
        keyless.apply();
        bit<48> cell;
        cells.read(cell, 1);
        cells.write(2, cell + 1);
        clone(CloneType.I2E, 5);
    }
}

control egress(inout headers_t headers, inout metadata_t meta,
               inout standard_metadata_t standard) {
    apply { }
}

control compute(inout headers_t headers, inout metadata_t meta) {
    apply { }
}

control write(packet_out packet, in headers_t headers) {
    apply { packet.emit(headers.label); }
}

V1Switch(read(), check(), ingress(), egress(), compute(), write()) main;
