// Packet subscriptions for the message format 'itch'.
//
// Made by the static step of the compiler (udfs/filters/p4_program.py): do not edit.
//
//   packet
//     |
//   parser ethernet > ipv4 > udp > moldudp64 > message_block > add_order
//     |
//     |-- no event ----------------------------> route: IPv4, longest prefix
//     |-- cut short ---------------------------> drop, counted
//     |
//   start: feed -> state
//     |
//   one stage a field: (state, value) -> state
//     |  message_type: exact, otherwise (8 bits)
//     |  add_order_stock: exact, otherwise (64 bits)
//     |  add_order_price: exact, range, otherwise (32 bits)
//     |  add_order_shares: exact, range, otherwise (32 bits)
//     |  add_order_buy_sell: exact, otherwise (8 bits)
//     |
//   leaf: state -> multicast group | port | nobody: drop, counted
//     |
//   traffic manager > deparser

#include <core.p4>
#include <v1model.p4>

// Widths and sizes.
typedef bit<32> state_t;
typedef bit<9> port_t;
typedef bit<16> group_t;

const bit<16> EVENT_PORT = 26400;
const int ROWS = 65536;  // of a table
const int ROUTES = 4096;
const bit<16> IPV4 = 0x0800;
const bit<8> UDP = 17;
const bit<8> FEED = 1;

// Counted, by index.
const bit<32> CUT_SHORT = 0;
const bit<32> UNSUBSCRIBED = 1;

header ethernet_h {
    bit<48> dst;
    bit<48> src;
    bit<16> type_;
}

header ipv4_h {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> length;
    bit<16> id;
    bit<3> flags;
    bit<13> offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

header moldudp64_h {
    bit<80> session;
    bit<64> sequence;
    bit<16> count;
}

header message_block_h {
    bit<16> length;
}

header add_order_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> order_reference_number;
    bit<8> buy_sell;
    bit<32> shares;
    bit<64> stock;
    bit<32> price;
}

struct headers_t {
    ethernet_h ethernet;
    ipv4_h ipv4;
    udp_h udp;
    moldudp64_h moldudp64;
    message_block_h message_block;
    add_order_h add_order;
}

struct metadata_t {
    bit<8> feed;  // 0: no event
    bit<8> message_type;
    state_t state;
    bit<1> delivered;
    bit<1> unwanted;  // no receiver, no named action
}

parser event_parser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type_) {
            IPV4: options;
            default: accept;
        }
    }

    // What has options is left alone: it is no event, and is not routed. A fragment is routed.
    state options {
        transition select(packet.lookahead<bit<64>>()) {
            64w0x4500000000000000 &&& 64w0xff00000000003fff: parse_ipv4;
            64w0x4500000000000000 &&& 64w0xff00000000000000: parse_fragment;
            default: accept;
        }
    }

    state parse_fragment {
        packet.extract(hdr.ipv4);
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) {
            UDP: parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            EVENT_PORT: reach_moldudp64;
            default: accept;
        }
    }

    state reach_moldudp64 {
        transition select(hdr.udp.length) {
            28 .. 65535: parse_moldudp64;
            default: accept;
        }
    }

    state parse_moldudp64 {
        packet.extract(hdr.moldudp64);
        transition reach_message_block;
    }

    state reach_message_block {
        transition select(hdr.udp.length) {
            30 .. 65535: parse_message_block;
            default: accept;
        }
    }

    state parse_message_block {
        packet.extract(hdr.message_block);
        transition reach_message;
    }

    state reach_message {
        transition select(hdr.udp.length) {
            31 .. 65535: parse_type;
            default: accept;
        }
    }

    // Several messages in a packet: the seam is here. After a message the parser may return
    // to the last framing headers, and ingress may apply `subscriptions` to each in turn.
    state parse_type {
        meta.message_type = packet.lookahead<bit<8>>();
        transition select(meta.message_type) {
            0x41: reach_add_order;
            0x42: parse_other_message;
            0x43: parse_other_message;
            0x44: parse_other_message;
            0x45: parse_other_message;
            0x46: parse_other_message;
            0x48: parse_other_message;
            0x49: parse_other_message;
            0x4a: parse_other_message;
            0x4b: parse_other_message;
            0x4c: parse_other_message;
            0x4e: parse_other_message;
            0x4f: parse_other_message;
            0x50: parse_other_message;
            0x51: parse_other_message;
            0x52: parse_other_message;
            0x53: parse_other_message;
            0x55: parse_other_message;
            0x56: parse_other_message;
            0x57: parse_other_message;
            0x58: parse_other_message;
            0x59: parse_other_message;
            0x68: parse_other_message;
            default: accept;
        }
    }

    state parse_other_message {
        meta.feed = FEED;
        transition accept;
    }

    state reach_add_order {
        transition select(hdr.udp.length) {
            66 .. 65535: parse_add_order;
            default: accept;
        }
    }

    state parse_add_order {
        packet.extract(hdr.add_order);
        meta.feed = FEED;
        transition accept;
    }
}

// message_type: exact, otherwise (8 bits)
control message_type_stage(in headers_t hdr, inout metadata_t meta) {
    bool found = false;

    action set_state(state_t next) {
        meta.state = next;
    }

    @name("exact")
    table exact_rows {
        key = {
            meta.state : exact @name("state");
            meta.message_type : exact @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    @name("otherwise")
    table otherwise_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    apply {
        if (exact_rows.apply().hit) {
            found = true;
        }
        if (!found) {
            otherwise_rows.apply();
        }
    }
}

// add_order.stock: exact, otherwise (64 bits)
control add_order_stock_stage(in headers_t hdr, inout metadata_t meta) {
    bool found = false;

    action set_state(state_t next) {
        meta.state = next;
    }

    @name("exact")
    table exact_rows {
        key = {
            meta.state : exact @name("state");
            hdr.add_order.stock : exact @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    @name("otherwise")
    table otherwise_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    apply {
        if (hdr.add_order.isValid()) {
            if (exact_rows.apply().hit) {
                found = true;
            }
        }
        if (!found) {
            otherwise_rows.apply();
        }
    }
}

// add_order.price: exact, range, otherwise (32 bits)
control add_order_price_stage(in headers_t hdr, inout metadata_t meta) {
    bool found = false;

    action set_state(state_t next) {
        meta.state = next;
    }

    @name("exact")
    table exact_rows {
        key = {
            meta.state : exact @name("state");
            hdr.add_order.price : exact @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    @name("range")
    table range_rows {
        key = {
            meta.state : exact @name("state");
            hdr.add_order.price : range @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    @name("otherwise")
    table otherwise_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    apply {
        if (hdr.add_order.isValid()) {
            if (exact_rows.apply().hit) {
                found = true;
            } else if (range_rows.apply().hit) {
                found = true;
            }
        }
        if (!found) {
            otherwise_rows.apply();
        }
    }
}

// add_order.shares: exact, range, otherwise (32 bits)
control add_order_shares_stage(in headers_t hdr, inout metadata_t meta) {
    bool found = false;

    action set_state(state_t next) {
        meta.state = next;
    }

    @name("exact")
    table exact_rows {
        key = {
            meta.state : exact @name("state");
            hdr.add_order.shares : exact @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    @name("range")
    table range_rows {
        key = {
            meta.state : exact @name("state");
            hdr.add_order.shares : range @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    @name("otherwise")
    table otherwise_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    apply {
        if (hdr.add_order.isValid()) {
            if (exact_rows.apply().hit) {
                found = true;
            } else if (range_rows.apply().hit) {
                found = true;
            }
        }
        if (!found) {
            otherwise_rows.apply();
        }
    }
}

// add_order.buy_sell: exact, otherwise (8 bits)
control add_order_buy_sell_stage(in headers_t hdr, inout metadata_t meta) {
    bool found = false;

    action set_state(state_t next) {
        meta.state = next;
    }

    @name("exact")
    table exact_rows {
        key = {
            meta.state : exact @name("state");
            hdr.add_order.buy_sell : exact @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    @name("otherwise")
    table otherwise_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    apply {
        if (hdr.add_order.isValid()) {
            if (exact_rows.apply().hit) {
                found = true;
            }
        }
        if (!found) {
            otherwise_rows.apply();
        }
    }
}

// The leaf: who gets the event.
control deliver(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action multicast(group_t group) {
        standard_metadata.mcast_grp = group;
        meta.delivered = 1;
    }
    action unicast(port_t port) {
        standard_metadata.egress_spec = port;
        meta.delivered = 1;
    }
    action drop() {
        mark_to_drop(standard_metadata);
    }

    @name("leaf")
    table leaf_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            multicast;
            unicast;
            drop;
        }
        const default_action = drop();
        size = ROWS;
    }

    apply {
        if (leaf_rows.apply().miss) {
            meta.unwanted = 1;
        }
    }
}

// One event: from the first state to its leaf, and what the leaf asks for.
control one_event(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    message_type_stage() message_type;
    add_order_stock_stage() add_order_stock;
    add_order_price_stage() add_order_price;
    add_order_shares_stage() add_order_shares;
    add_order_buy_sell_stage() add_order_buy_sell;
    deliver() delivery;

    action set_state(state_t next) {
        meta.state = next;
    }

    // Its one row moves all events to another set of states at once.
    @name("start")
    table start_rows {
        key = {
            meta.feed : exact @name("feed");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 1;
    }

    apply {
        if (start_rows.apply().hit) {
            message_type.apply(hdr, meta);
            add_order_stock.apply(hdr, meta);
            add_order_price.apply(hdr, meta);
            add_order_shares.apply(hdr, meta);
            add_order_buy_sell.apply(hdr, meta);
            delivery.apply(meta, standard_metadata);
        } else {
            mark_to_drop(standard_metadata);
        }
    }
}

// All other traffic.
control route(inout headers_t hdr, inout standard_metadata_t standard_metadata) {
    action send(bit<48> next_hop, port_t port) {
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = next_hop;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        standard_metadata.egress_spec = port;
    }
    action drop() {
        mark_to_drop(standard_metadata);
    }

    @name("ipv4")
    table ipv4_rows {
        key = {
            hdr.ipv4.dst : lpm @name("dst");
        }
        actions = {
            send;
            drop;
        }
        const default_action = drop();
        size = ROUTES;
    }

    apply {
        if (hdr.ipv4.isValid() && hdr.ipv4.ttl > 1) {
            ipv4_rows.apply();
        } else {
            drop();
        }
    }
}

control ingress(inout headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    counter(2, CounterType.packets) not_sent;
    one_event() subscriptions;
    route() other;

    apply {
        if (standard_metadata.parser_error != error.NoError) {
            not_sent.count(CUT_SHORT);
            mark_to_drop(standard_metadata);
        } else {
            if (meta.feed == FEED) {
                subscriptions.apply(hdr, meta, standard_metadata);
            }
            if (meta.feed != FEED) {
                other.apply(hdr, standard_metadata);
            }
            if (meta.feed == FEED && meta.delivered == 0) {
                not_sent.count(UNSUBSCRIBED);
            }
        }
    }
}

// A copy leaves as it came: taking messages off for a port would be done here.
control egress(inout headers_t hdr, inout metadata_t meta,
               inout standard_metadata_t standard_metadata) {
    apply {
    }
}

control verify_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}

control compute_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
            hdr.ipv4.isValid(),
            {
                hdr.ipv4.version,
                hdr.ipv4.ihl,
                hdr.ipv4.tos,
                hdr.ipv4.length,
                hdr.ipv4.id,
                hdr.ipv4.flags,
                hdr.ipv4.offset,
                hdr.ipv4.ttl,
                hdr.ipv4.protocol,
                hdr.ipv4.src,
                hdr.ipv4.dst
            },
            hdr.ipv4.checksum,
            HashAlgorithm.csum16);
    }
}

control event_deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.moldudp64);
        packet.emit(hdr.message_block);
        packet.emit(hdr.add_order);
    }
}

V1Switch(event_parser(), verify_checksums(), ingress(), egress(), compute_checksums(),
         event_deparser()) main;
