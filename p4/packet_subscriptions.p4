// Packet subscriptions for the message format 'itch'.
//
// Made by the static step of the compiler (udfs/filters/switch/program.py): do not edit.
//
//   packet
//     |
//   parser ethernet > ipv4 > udp > moldudp64 > message_block > system_event | stock_directory |
//     |    stock_trading_action | reg_sho_restriction | market_participant_position |
//     |    mwcb_decline_level | mwcb_status | ipo_quoting_period | luld_auction_collar |
//     |    operational_halt | add_order | add_order_mpid | order_executed |
//     |    order_executed_with_price | order_cancel | order_delete | order_replace | trade |
//     |    cross_trade | broken_trade | noii | retail_price_improvement |
//     |    direct_listing_capital_raise
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
//   state: 4 times (state -> cell), (state, what it holds) -> state,
//     |    then 4 times (leaf -> cell, operand): update the cell
//     |    registers: recent[1024]
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
typedef bit<64> value_t;  // of a cell
typedef bit<48> start_t;  // of a cell's window

const bit<16> EVENT_PORT = 26400;
const int ROWS = 65536;  // of a table, at most
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

header system_event_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<8> event_code;
}

header stock_directory_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> stock;
    bit<8> market_category;
    bit<8> financial_status_indicator;
    bit<32> round_lot_size;
    bit<8> round_lots_only;
    bit<8> issue_classification;
    bit<16> issue_subtype;
    bit<8> authenticity;
    bit<8> short_sale_threshold_indicator;
    bit<8> ipo_flag;
    bit<8> luld_reference_price_tier;
    bit<8> etp_flag;
    bit<32> etp_leverage_factor;
    bit<8> inverse_indicator;
}

header stock_trading_action_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> stock;
    bit<8> trading_state;
    bit<8> reserved;
    bit<32> reason;
}

header reg_sho_restriction_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> stock;
    bit<8> reg_sho_action;
}

header market_participant_position_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<32> mpid;
    bit<64> stock;
    bit<8> primary_market_maker;
    bit<8> market_maker_mode;
    bit<8> market_participant_state;
}

header mwcb_decline_level_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> level_1;
    bit<64> level_2;
    bit<64> level_3;
}

header mwcb_status_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<8> breached_level;
}

header ipo_quoting_period_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> stock;
    bit<32> ipo_quotation_release_time;
    bit<8> ipo_quotation_release_qualifier;
    bit<32> ipo_price;
}

header luld_auction_collar_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> stock;
    bit<32> auction_collar_reference_price;
    bit<32> upper_auction_collar_price;
    bit<32> lower_auction_collar_price;
    bit<32> auction_collar_extension;
}

header operational_halt_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> stock;
    bit<8> market_code;
    bit<8> operational_halt_action;
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

header add_order_mpid_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> order_reference_number;
    bit<8> buy_sell;
    bit<32> shares;
    bit<64> stock;
    bit<32> price;
    bit<32> attribution;
}

header order_executed_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> order_reference_number;
    bit<32> executed_shares;
    bit<64> match_number;
}

header order_executed_with_price_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> order_reference_number;
    bit<32> executed_shares;
    bit<64> match_number;
    bit<8> printable;
    bit<32> execution_price;
}

header order_cancel_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> order_reference_number;
    bit<32> cancelled_shares;
}

header order_delete_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> order_reference_number;
}

header order_replace_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> original_order_reference_number;
    bit<64> new_order_reference_number;
    bit<32> shares;
    bit<32> price;
}

header trade_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> order_reference_number;
    bit<8> buy_sell;
    bit<32> shares;
    bit<64> stock;
    bit<32> price;
    bit<64> match_number;
}

header cross_trade_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> shares;
    bit<64> stock;
    bit<32> cross_price;
    bit<64> match_number;
    bit<8> cross_type;
}

header broken_trade_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> match_number;
}

header noii_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> paired_shares;
    bit<64> imbalance_shares;
    bit<8> imbalance_direction;
    bit<64> stock;
    bit<32> far_price;
    bit<32> near_price;
    bit<32> current_reference_price;
    bit<8> cross_type;
    bit<8> price_variation_indicator;
}

header retail_price_improvement_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> stock;
    bit<8> interest_flag;
}

header direct_listing_capital_raise_h {
    bit<8> message_type;
    bit<16> stock_locate;
    bit<16> tracking_number;
    bit<48> timestamp;
    bit<64> stock;
    bit<8> open_eligibility_status;
    bit<32> minimum_allowable_price;
    bit<32> maximum_allowable_price;
    bit<32> near_execution_price;
    bit<64> near_execution_time;
    bit<32> lower_price_range_collar;
    bit<32> upper_price_range_collar;
}

struct headers_t {
    ethernet_h ethernet;
    ipv4_h ipv4;
    udp_h udp;
    moldudp64_h moldudp64;
    message_block_h message_block;
    system_event_h system_event;
    stock_directory_h stock_directory;
    stock_trading_action_h stock_trading_action;
    reg_sho_restriction_h reg_sho_restriction;
    market_participant_position_h market_participant_position;
    mwcb_decline_level_h mwcb_decline_level;
    mwcb_status_h mwcb_status;
    ipo_quoting_period_h ipo_quoting_period;
    luld_auction_collar_h luld_auction_collar;
    operational_halt_h operational_halt;
    add_order_h add_order;
    add_order_mpid_h add_order_mpid;
    order_executed_h order_executed;
    order_executed_with_price_h order_executed_with_price;
    order_cancel_h order_cancel;
    order_delete_h order_delete;
    order_replace_h order_replace;
    trade_h trade;
    cross_trade_h cross_trade;
    broken_trade_h broken_trade;
    noii_h noii;
    retail_price_improvement_h retail_price_improvement;
    direct_listing_capital_raise_h direct_listing_capital_raise;
}

struct metadata_t {
    bit<8> feed;  // 0: no event
    bit<8> message_type;
    state_t state;
    bit<1> delivered;
    bit<1> unwanted;  // no receiver, no named action
    bit<64> now;
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
            0x42: reach_broken_trade;
            0x43: reach_order_executed_with_price;
            0x44: reach_order_delete;
            0x45: reach_order_executed;
            0x46: reach_add_order_mpid;
            0x48: reach_stock_trading_action;
            0x49: reach_noii;
            0x4a: reach_luld_auction_collar;
            0x4b: reach_ipo_quoting_period;
            0x4c: reach_market_participant_position;
            0x4e: reach_retail_price_improvement;
            0x4f: reach_direct_listing_capital_raise;
            0x50: reach_trade;
            0x51: reach_cross_trade;
            0x52: reach_stock_directory;
            0x53: reach_system_event;
            0x55: reach_order_replace;
            0x56: reach_mwcb_decline_level;
            0x57: reach_mwcb_status;
            0x58: reach_order_cancel;
            0x59: reach_reg_sho_restriction;
            0x68: reach_operational_halt;
            default: accept;
        }
    }

    state reach_system_event {
        transition select(hdr.udp.length) {
            42 .. 65535: parse_system_event;
            default: accept;
        }
    }

    state parse_system_event {
        packet.extract(hdr.system_event);
        meta.feed = FEED;
        transition accept;
    }

    state reach_stock_directory {
        transition select(hdr.udp.length) {
            69 .. 65535: parse_stock_directory;
            default: accept;
        }
    }

    state parse_stock_directory {
        packet.extract(hdr.stock_directory);
        meta.feed = FEED;
        transition accept;
    }

    state reach_stock_trading_action {
        transition select(hdr.udp.length) {
            55 .. 65535: parse_stock_trading_action;
            default: accept;
        }
    }

    state parse_stock_trading_action {
        packet.extract(hdr.stock_trading_action);
        meta.feed = FEED;
        transition accept;
    }

    state reach_reg_sho_restriction {
        transition select(hdr.udp.length) {
            50 .. 65535: parse_reg_sho_restriction;
            default: accept;
        }
    }

    state parse_reg_sho_restriction {
        packet.extract(hdr.reg_sho_restriction);
        meta.feed = FEED;
        transition accept;
    }

    state reach_market_participant_position {
        transition select(hdr.udp.length) {
            56 .. 65535: parse_market_participant_position;
            default: accept;
        }
    }

    state parse_market_participant_position {
        packet.extract(hdr.market_participant_position);
        meta.feed = FEED;
        transition accept;
    }

    state reach_mwcb_decline_level {
        transition select(hdr.udp.length) {
            65 .. 65535: parse_mwcb_decline_level;
            default: accept;
        }
    }

    state parse_mwcb_decline_level {
        packet.extract(hdr.mwcb_decline_level);
        meta.feed = FEED;
        transition accept;
    }

    state reach_mwcb_status {
        transition select(hdr.udp.length) {
            42 .. 65535: parse_mwcb_status;
            default: accept;
        }
    }

    state parse_mwcb_status {
        packet.extract(hdr.mwcb_status);
        meta.feed = FEED;
        transition accept;
    }

    state reach_ipo_quoting_period {
        transition select(hdr.udp.length) {
            58 .. 65535: parse_ipo_quoting_period;
            default: accept;
        }
    }

    state parse_ipo_quoting_period {
        packet.extract(hdr.ipo_quoting_period);
        meta.feed = FEED;
        transition accept;
    }

    state reach_luld_auction_collar {
        transition select(hdr.udp.length) {
            65 .. 65535: parse_luld_auction_collar;
            default: accept;
        }
    }

    state parse_luld_auction_collar {
        packet.extract(hdr.luld_auction_collar);
        meta.feed = FEED;
        transition accept;
    }

    state reach_operational_halt {
        transition select(hdr.udp.length) {
            51 .. 65535: parse_operational_halt;
            default: accept;
        }
    }

    state parse_operational_halt {
        packet.extract(hdr.operational_halt);
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

    state reach_add_order_mpid {
        transition select(hdr.udp.length) {
            70 .. 65535: parse_add_order_mpid;
            default: accept;
        }
    }

    state parse_add_order_mpid {
        packet.extract(hdr.add_order_mpid);
        meta.feed = FEED;
        transition accept;
    }

    state reach_order_executed {
        transition select(hdr.udp.length) {
            61 .. 65535: parse_order_executed;
            default: accept;
        }
    }

    state parse_order_executed {
        packet.extract(hdr.order_executed);
        meta.feed = FEED;
        transition accept;
    }

    state reach_order_executed_with_price {
        transition select(hdr.udp.length) {
            66 .. 65535: parse_order_executed_with_price;
            default: accept;
        }
    }

    state parse_order_executed_with_price {
        packet.extract(hdr.order_executed_with_price);
        meta.feed = FEED;
        transition accept;
    }

    state reach_order_cancel {
        transition select(hdr.udp.length) {
            53 .. 65535: parse_order_cancel;
            default: accept;
        }
    }

    state parse_order_cancel {
        packet.extract(hdr.order_cancel);
        meta.feed = FEED;
        transition accept;
    }

    state reach_order_delete {
        transition select(hdr.udp.length) {
            49 .. 65535: parse_order_delete;
            default: accept;
        }
    }

    state parse_order_delete {
        packet.extract(hdr.order_delete);
        meta.feed = FEED;
        transition accept;
    }

    state reach_order_replace {
        transition select(hdr.udp.length) {
            65 .. 65535: parse_order_replace;
            default: accept;
        }
    }

    state parse_order_replace {
        packet.extract(hdr.order_replace);
        meta.feed = FEED;
        transition accept;
    }

    state reach_trade {
        transition select(hdr.udp.length) {
            74 .. 65535: parse_trade;
            default: accept;
        }
    }

    state parse_trade {
        packet.extract(hdr.trade);
        meta.feed = FEED;
        transition accept;
    }

    state reach_cross_trade {
        transition select(hdr.udp.length) {
            70 .. 65535: parse_cross_trade;
            default: accept;
        }
    }

    state parse_cross_trade {
        packet.extract(hdr.cross_trade);
        meta.feed = FEED;
        transition accept;
    }

    state reach_broken_trade {
        transition select(hdr.udp.length) {
            49 .. 65535: parse_broken_trade;
            default: accept;
        }
    }

    state parse_broken_trade {
        packet.extract(hdr.broken_trade);
        meta.feed = FEED;
        transition accept;
    }

    state reach_noii {
        transition select(hdr.udp.length) {
            80 .. 65535: parse_noii;
            default: accept;
        }
    }

    state parse_noii {
        packet.extract(hdr.noii);
        meta.feed = FEED;
        transition accept;
    }

    state reach_retail_price_improvement {
        transition select(hdr.udp.length) {
            50 .. 65535: parse_retail_price_improvement;
            default: accept;
        }
    }

    state parse_retail_price_improvement {
        packet.extract(hdr.retail_price_improvement);
        meta.feed = FEED;
        transition accept;
    }

    state reach_direct_listing_capital_raise {
        transition select(hdr.udp.length) {
            78 .. 65535: parse_direct_listing_capital_raise;
            default: accept;
        }
    }

    state parse_direct_listing_capital_raise {
        packet.extract(hdr.direct_listing_capital_raise);
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
        size = 512;
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
        size = 2;
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
        size = 65536;
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
        size = 516;
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
        size = 65536;
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
        size = 65536;
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
        size = 65536;
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
        size = 65536;
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
        size = 65536;
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
        size = 65536;
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
        size = 65536;
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
        size = 65536;
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

// What a cell holds, by its number in the entries.
const bit<8> COUNT = 0;
const bit<8> SUM = 1;
const bit<8> AVG = 2;
const bit<8> MIN = 3;
const bit<8> MAX = 4;

struct cell_t {
    bit<8> block;  // registers of which counter
    bit<32> slot;
    bit<8> function;
    bit<64> window;
    start_t start;
    bit<32> count;
    value_t value;
    bit<1> known;
}

// The time of an event, 1000 a microsecond: its own clock, else that of the switch.
control clock(in headers_t hdr, inout metadata_t meta,
              in standard_metadata_t standard_metadata) {
    apply {
        if (hdr.system_event.isValid()) {
            meta.now = (bit<64>) hdr.system_event.timestamp;
        } else if (hdr.stock_directory.isValid()) {
            meta.now = (bit<64>) hdr.stock_directory.timestamp;
        } else if (hdr.stock_trading_action.isValid()) {
            meta.now = (bit<64>) hdr.stock_trading_action.timestamp;
        } else if (hdr.reg_sho_restriction.isValid()) {
            meta.now = (bit<64>) hdr.reg_sho_restriction.timestamp;
        } else if (hdr.market_participant_position.isValid()) {
            meta.now = (bit<64>) hdr.market_participant_position.timestamp;
        } else if (hdr.mwcb_decline_level.isValid()) {
            meta.now = (bit<64>) hdr.mwcb_decline_level.timestamp;
        } else if (hdr.mwcb_status.isValid()) {
            meta.now = (bit<64>) hdr.mwcb_status.timestamp;
        } else if (hdr.ipo_quoting_period.isValid()) {
            meta.now = (bit<64>) hdr.ipo_quoting_period.timestamp;
        } else if (hdr.luld_auction_collar.isValid()) {
            meta.now = (bit<64>) hdr.luld_auction_collar.timestamp;
        } else if (hdr.operational_halt.isValid()) {
            meta.now = (bit<64>) hdr.operational_halt.timestamp;
        } else if (hdr.add_order.isValid()) {
            meta.now = (bit<64>) hdr.add_order.timestamp;
        } else if (hdr.add_order_mpid.isValid()) {
            meta.now = (bit<64>) hdr.add_order_mpid.timestamp;
        } else if (hdr.order_executed.isValid()) {
            meta.now = (bit<64>) hdr.order_executed.timestamp;
        } else if (hdr.order_executed_with_price.isValid()) {
            meta.now = (bit<64>) hdr.order_executed_with_price.timestamp;
        } else if (hdr.order_cancel.isValid()) {
            meta.now = (bit<64>) hdr.order_cancel.timestamp;
        } else if (hdr.order_delete.isValid()) {
            meta.now = (bit<64>) hdr.order_delete.timestamp;
        } else if (hdr.order_replace.isValid()) {
            meta.now = (bit<64>) hdr.order_replace.timestamp;
        } else if (hdr.trade.isValid()) {
            meta.now = (bit<64>) hdr.trade.timestamp;
        } else if (hdr.cross_trade.isValid()) {
            meta.now = (bit<64>) hdr.cross_trade.timestamp;
        } else if (hdr.broken_trade.isValid()) {
            meta.now = (bit<64>) hdr.broken_trade.timestamp;
        } else if (hdr.noii.isValid()) {
            meta.now = (bit<64>) hdr.noii.timestamp;
        } else if (hdr.retail_price_improvement.isValid()) {
            meta.now = (bit<64>) hdr.retail_price_improvement.timestamp;
        } else if (hdr.direct_listing_capital_raise.isValid()) {
            meta.now = (bit<64>) hdr.direct_listing_capital_raise.timestamp;
        } else {
            meta.now = (bit<64>) standard_metadata.ingress_global_timestamp * 1000;
        }
    }
}

// The registers of a cell to what a condition sees.
control reading(in metadata_t meta, inout cell_t cell) {
    start_t after = 0;
    start_t before = 0;
    bit<128> divisor = 0;
    bit<128> less = 0;
    bit<128> work = 0;

    // Restoring division, as no target divides: remainder above, quotient below, and
    // where the divisor fits, it is taken off above and 1 is put in below.
    action divide() {
        divisor = (bit<128>) cell.count << 64;
        less = divisor - 1;
        work = (bit<128>) cell.value;
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        cell.value = work[63:0];
    }

    apply {
        cell.known = 1;
        // Times differ around the clock, either way.
        after = (start_t) meta.now - cell.start;
        before = cell.start - (start_t) meta.now;
        if ((bit<64>) after >= cell.window && (bit<64>) before >= cell.window) {
            cell.count = 0;
        }
        if (cell.count == 0) {
            cell.value = 0;
            if (cell.function != COUNT && cell.function != SUM) {
                cell.known = 0;
            }
        } else if (cell.function == COUNT) {
            cell.value = (value_t) cell.count;
        } else if (cell.function == AVG) {
            divide();
        }
    }
}

// The registers of a cell after an event with this operand.
control updating(in metadata_t meta, inout cell_t cell, in value_t operand) {
    start_t after = 0;
    start_t before = 0;
    apply {
        after = (start_t) meta.now - cell.start;
        before = cell.start - (start_t) meta.now;
        if ((bit<64>) after >= cell.window && (bit<64>) before >= cell.window) {
            cell.count = 0;
        }
        if (cell.count == 0) {
            cell.start = (start_t) meta.now;
            cell.count = 1;
            cell.value = operand;
        } else {
            cell.count = cell.count |+| 1;
            if (cell.function == SUM || cell.function == AVG) {
                cell.value = cell.value |+| operand;
            } else if (cell.function == MIN) {
                if (operand < cell.value) {
                    cell.value = operand;
                }
            } else if (cell.function == MAX) {
                if (operand > cell.value) {
                    cell.value = operand;
                }
            }
        }
    }
}

// State: (state, cell) -> state for the conditions, then leaf -> cells to update. A
// target that reaches a register once a pass needs its own registers for each position.
control state_stage(in headers_t hdr, inout metadata_t meta,
                    in standard_metadata_t standard_metadata) {
    register<start_t>(1024) recent_start;
    register<bit<32>>(1024) recent_count;
    register<value_t>(1024) recent_value;

    cell_t cell = { 0, 0, 0, 0, 0, 0, 0, 0 };
    value_t operand = 0;
    bit<1> known = 0;
    bool found = false;
    clock() clock_;
    reading() reading_1;
    reading() reading_2;
    reading() reading_3;
    reading() reading_4;
    updating() updating_1;
    updating() updating_2;
    updating() updating_3;
    updating() updating_4;

    action set_state(state_t next) {
        meta.state = next;
    }
    action load(bit<8> block, bit<32> slot, bit<8> function) {
        cell.block = block;
        cell.slot = slot;
        cell.function = function;
    }
    action update(bit<8> block, bit<32> slot, bit<8> function) {
        load(block, slot, function);
        operand = 0;
        known = 1;
    }
    action update_with_add_order_stock(bit<8> block, bit<32> slot, bit<8> function) {
        load(block, slot, function);
        operand = (value_t) hdr.add_order.stock;
        known = hdr.add_order.isValid() ? 1w1 : 1w0;
    }
    action update_with_add_order_price(bit<8> block, bit<32> slot, bit<8> function) {
        load(block, slot, function);
        operand = (value_t) hdr.add_order.price;
        known = hdr.add_order.isValid() ? 1w1 : 1w0;
    }
    action update_with_add_order_shares(bit<8> block, bit<32> slot, bit<8> function) {
        load(block, slot, function);
        operand = (value_t) hdr.add_order.shares;
        known = hdr.add_order.isValid() ? 1w1 : 1w0;
    }
    action update_with_add_order_buy_sell(bit<8> block, bit<32> slot, bit<8> function) {
        load(block, slot, function);
        operand = (value_t) hdr.add_order.buy_sell;
        known = hdr.add_order.isValid() ? 1w1 : 1w0;
    }

    @name("load_1")
    table load_1_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            load;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("exact_1")
    table exact_1_rows {
        key = {
            meta.state : exact @name("state");
            cell.value : exact @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("range_1")
    table range_1_rows {
        key = {
            meta.state : exact @name("state");
            cell.value : range @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("otherwise_1")
    table otherwise_1_rows {
        key = {
            meta.state : exact @name("state");
            cell.known : exact @name("known");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 16384;
    }

    @name("load_2")
    table load_2_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            load;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("exact_2")
    table exact_2_rows {
        key = {
            meta.state : exact @name("state");
            cell.value : exact @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("range_2")
    table range_2_rows {
        key = {
            meta.state : exact @name("state");
            cell.value : range @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("otherwise_2")
    table otherwise_2_rows {
        key = {
            meta.state : exact @name("state");
            cell.known : exact @name("known");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 16384;
    }

    @name("load_3")
    table load_3_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            load;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("exact_3")
    table exact_3_rows {
        key = {
            meta.state : exact @name("state");
            cell.value : exact @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("range_3")
    table range_3_rows {
        key = {
            meta.state : exact @name("state");
            cell.value : range @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("otherwise_3")
    table otherwise_3_rows {
        key = {
            meta.state : exact @name("state");
            cell.known : exact @name("known");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 16384;
    }

    @name("load_4")
    table load_4_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            load;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("exact_4")
    table exact_4_rows {
        key = {
            meta.state : exact @name("state");
            cell.value : exact @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("range_4")
    table range_4_rows {
        key = {
            meta.state : exact @name("state");
            cell.value : range @name("value");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 8192;
    }

    @name("otherwise_4")
    table otherwise_4_rows {
        key = {
            meta.state : exact @name("state");
            cell.known : exact @name("known");
        }
        actions = {
            set_state;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 16384;
    }

    @name("update_1")
    table update_1_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            update;
            update_with_add_order_stock;
            update_with_add_order_price;
            update_with_add_order_shares;
            update_with_add_order_buy_sell;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 65536;
    }

    @name("update_2")
    table update_2_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            update;
            update_with_add_order_stock;
            update_with_add_order_price;
            update_with_add_order_shares;
            update_with_add_order_buy_sell;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 65536;
    }

    @name("update_3")
    table update_3_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            update;
            update_with_add_order_stock;
            update_with_add_order_price;
            update_with_add_order_shares;
            update_with_add_order_buy_sell;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 65536;
    }

    @name("update_4")
    table update_4_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            update;
            update_with_add_order_stock;
            update_with_add_order_price;
            update_with_add_order_shares;
            update_with_add_order_buy_sell;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 65536;
    }

    apply {
        clock_.apply(hdr, meta, standard_metadata);

        // All conditions look at cells as the event finds them.
        if (load_1_rows.apply().hit) {
            if (cell.block == 0) {
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
                cell.window = 1000000000;
            }
            reading_1.apply(meta, cell);
            found = false;
            if (cell.known == 1) {
                if (exact_1_rows.apply().hit) {
                    found = true;
                } else if (range_1_rows.apply().hit) {
                    found = true;
                }
            }
            if (!found) {
                otherwise_1_rows.apply();
            }
        }
        if (load_2_rows.apply().hit) {
            if (cell.block == 0) {
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
                cell.window = 1000000000;
            }
            reading_2.apply(meta, cell);
            found = false;
            if (cell.known == 1) {
                if (exact_2_rows.apply().hit) {
                    found = true;
                } else if (range_2_rows.apply().hit) {
                    found = true;
                }
            }
            if (!found) {
                otherwise_2_rows.apply();
            }
        }
        if (load_3_rows.apply().hit) {
            if (cell.block == 0) {
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
                cell.window = 1000000000;
            }
            reading_3.apply(meta, cell);
            found = false;
            if (cell.known == 1) {
                if (exact_3_rows.apply().hit) {
                    found = true;
                } else if (range_3_rows.apply().hit) {
                    found = true;
                }
            }
            if (!found) {
                otherwise_3_rows.apply();
            }
        }
        if (load_4_rows.apply().hit) {
            if (cell.block == 0) {
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
                cell.window = 1000000000;
            }
            reading_4.apply(meta, cell);
            found = false;
            if (cell.known == 1) {
                if (exact_4_rows.apply().hit) {
                    found = true;
                } else if (range_4_rows.apply().hit) {
                    found = true;
                }
            }
            if (!found) {
                otherwise_4_rows.apply();
            }
        }

        // Then the updates that its leaf asks for.
        known = 0;
        update_1_rows.apply();
        if (known == 1) {
            if (cell.block == 0) {
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
                cell.window = 1000000000;
            }
            updating_1.apply(meta, cell, operand);
            if (cell.block == 0) {
                recent_start.write(cell.slot, cell.start);
                recent_count.write(cell.slot, cell.count);
                recent_value.write(cell.slot, cell.value);
            }
        }
        known = 0;
        update_2_rows.apply();
        if (known == 1) {
            if (cell.block == 0) {
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
                cell.window = 1000000000;
            }
            updating_2.apply(meta, cell, operand);
            if (cell.block == 0) {
                recent_start.write(cell.slot, cell.start);
                recent_count.write(cell.slot, cell.count);
                recent_value.write(cell.slot, cell.value);
            }
        }
        known = 0;
        update_3_rows.apply();
        if (known == 1) {
            if (cell.block == 0) {
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
                cell.window = 1000000000;
            }
            updating_3.apply(meta, cell, operand);
            if (cell.block == 0) {
                recent_start.write(cell.slot, cell.start);
                recent_count.write(cell.slot, cell.count);
                recent_value.write(cell.slot, cell.value);
            }
        }
        known = 0;
        update_4_rows.apply();
        if (known == 1) {
            if (cell.block == 0) {
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
                cell.window = 1000000000;
            }
            updating_4.apply(meta, cell, operand);
            if (cell.block == 0) {
                recent_start.write(cell.slot, cell.start);
                recent_count.write(cell.slot, cell.count);
                recent_value.write(cell.slot, cell.value);
            }
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
    state_stage() cells;
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
            cells.apply(hdr, meta, standard_metadata);
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
        packet.emit(hdr.system_event);
        packet.emit(hdr.stock_directory);
        packet.emit(hdr.stock_trading_action);
        packet.emit(hdr.reg_sho_restriction);
        packet.emit(hdr.market_participant_position);
        packet.emit(hdr.mwcb_decline_level);
        packet.emit(hdr.mwcb_status);
        packet.emit(hdr.ipo_quoting_period);
        packet.emit(hdr.luld_auction_collar);
        packet.emit(hdr.operational_halt);
        packet.emit(hdr.add_order);
        packet.emit(hdr.add_order_mpid);
        packet.emit(hdr.order_executed);
        packet.emit(hdr.order_executed_with_price);
        packet.emit(hdr.order_cancel);
        packet.emit(hdr.order_delete);
        packet.emit(hdr.order_replace);
        packet.emit(hdr.trade);
        packet.emit(hdr.cross_trade);
        packet.emit(hdr.broken_trade);
        packet.emit(hdr.noii);
        packet.emit(hdr.retail_price_improvement);
        packet.emit(hdr.direct_listing_capital_raise);
    }
}

V1Switch(event_parser(), verify_checksums(), ingress(), egress(), compute_checksums(),
         event_deparser()) main;
