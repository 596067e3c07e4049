// Parses a packet into headers.
parser event_parser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    bit<16> room = 0;  // remaining bytes of the datagram
    bit<16> left = 0;  // remaining messages

    state start {
        meta.again = 0;
        meta.ready = 0;
        meta.header_bytes = IPV4_BYTES;
        meta.events = 0;
        meta.no_sum = 0;
        meta.summed = 0;
        meta.feed = 0;
        transition select(standard_metadata.instance_type) {
            RECIRCULATED: again;
            default: arrived;
        }
    }

    // Initializes the metadata that is preserved for later passes.
    state arrived {
        meta.step = ARRIVED;
        meta.ports = 0;
        meta.all_ports = 0;
        meta.place = 0;
        meta.examined_bits = 0;
        meta.next = 0;
        transition parse_ethernet;
    }

    state again {
        transition select(meta.step) {
            WHOLE: accept;
            default: parse_ethernet;
        }
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type_) {
            IPV4: parse_version;
            default: accept;
        }
    }

    // Fragments and packets with options are routed, because they are not events.
    state parse_version {
        transition select(packet.lookahead<bit<64>>()) {
            64w0x4500000000000000 &&& 64w0xff00000000003fff: parse_ipv4;
            64w0x4500000000000000 &&& 64w0xff00000000000000: parse_routed;
            64w0x4600000000000000 &&& 64w0xfe00000000000000: parse_options;
            64w0x4800000000000000 &&& 64w0xf800000000000000: parse_options;
            default: accept;
        }
    }

    state parse_routed {
        packet.extract(hdr.ipv4);
        transition accept;
    }

    state parse_options {
        meta.header_bytes = (bit<16>) packet.lookahead<bit<8>>()[3:0] << 2;
        packet.extract(hdr.ipv4);
        packet.extract(hdr.options, (bit<32>) (meta.header_bytes - IPV4_BYTES) << 3);
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
        verify(hdr.udp.length >= 28 && hdr.ipv4.length == hdr.udp.length + 20, error.BadLength);
        verify(hdr.udp.length <= DATAGRAM, error.TooLong);
        packet.extract(hdr.moldudp64);
        room = hdr.udp.length - 28;
        left = hdr.moldudp64.count;
        transition select(meta.step, hdr.moldudp64.count) {
            (ARRIVED, 0): no_messages;
            (ARRIVED, 0xffff): no_messages;
            (ARRIVED, _): several;
            (EXAMINE, _): skip;
            default: wanted_block;
        }
    }

    // A heartbeat or an end of session is routed, because it is not an event.
    state no_messages {
        verify(room == 0, error.BadLength);
        transition accept;
    }

    state several {
        verify(hdr.moldudp64.count <= MESSAGES, error.TooManyMessages);
        meta.events = 1;
        transition parse_message_block;
    }

    state skip {
        meta.events = 1;
        packet.extract(hdr.examined, meta.examined_bits);
        transition parse_message_block;
    }

    state parse_message_block {
        verify(room >= 2, error.BadLength);
        packet.extract(hdr.message_block);
        room = room - 2;
        verify(hdr.message_block.length <= room, error.BadLength);
        verify(hdr.message_block.length <= MESSAGE, error.TooLong);
        room = room - hdr.message_block.length;
        left = left - 1;
        transition select(hdr.message_block.length) {
            0: more;
            default: parse_type;
        }
    }

    // A message with a wrong length for its type is not an event.
    state parse_type {
        meta.message_type = packet.lookahead<bit<8>>();
        transition select(meta.message_type, hdr.message_block.length) {
            (0x41, 36): parse_add_order;
            (0x42, 19): parse_broken_trade;
            (0x43, 36): parse_order_executed_with_price;
            (0x44, 19): parse_order_delete;
            (0x45, 31): parse_order_executed;
            (0x46, 40): parse_add_order_mpid;
            (0x48, 25): parse_stock_trading_action;
            (0x49, 50): parse_noii;
            (0x4a, 35): parse_luld_auction_collar;
            (0x4b, 28): parse_ipo_quoting_period;
            (0x4c, 26): parse_market_participant_position;
            (0x4e, 20): parse_retail_price_improvement;
            (0x4f, 48): parse_direct_listing_capital_raise;
            (0x50, 44): parse_trade;
            (0x51, 40): parse_cross_trade;
            (0x52, 39): parse_stock_directory;
            (0x53, 12): parse_system_event;
            (0x55, 35): parse_order_replace;
            (0x56, 35): parse_mwcb_decline_level;
            (0x57, 12): parse_mwcb_status;
            (0x58, 23): parse_order_cancel;
            (0x59, 20): parse_reg_sho_restriction;
            (0x68, 21): parse_operational_halt;
            default: rest_of_message;
        }
    }

    state parse_system_event {
        packet.extract(hdr.system_event);
        meta.feed = FEED;
        transition more;
    }

    state parse_stock_directory {
        packet.extract(hdr.stock_directory);
        meta.feed = FEED;
        transition more;
    }

    state parse_stock_trading_action {
        packet.extract(hdr.stock_trading_action);
        meta.feed = FEED;
        transition more;
    }

    state parse_reg_sho_restriction {
        packet.extract(hdr.reg_sho_restriction);
        meta.feed = FEED;
        transition more;
    }

    state parse_market_participant_position {
        packet.extract(hdr.market_participant_position);
        meta.feed = FEED;
        transition more;
    }

    state parse_mwcb_decline_level {
        packet.extract(hdr.mwcb_decline_level);
        meta.feed = FEED;
        transition more;
    }

    state parse_mwcb_status {
        packet.extract(hdr.mwcb_status);
        meta.feed = FEED;
        transition more;
    }

    state parse_ipo_quoting_period {
        packet.extract(hdr.ipo_quoting_period);
        meta.feed = FEED;
        transition more;
    }

    state parse_luld_auction_collar {
        packet.extract(hdr.luld_auction_collar);
        meta.feed = FEED;
        transition more;
    }

    state parse_operational_halt {
        packet.extract(hdr.operational_halt);
        meta.feed = FEED;
        transition more;
    }

    state parse_add_order {
        packet.extract(hdr.add_order);
        meta.feed = FEED;
        transition more;
    }

    state parse_add_order_mpid {
        packet.extract(hdr.add_order_mpid);
        meta.feed = FEED;
        transition more;
    }

    state parse_order_executed {
        packet.extract(hdr.order_executed);
        meta.feed = FEED;
        transition more;
    }

    state parse_order_executed_with_price {
        packet.extract(hdr.order_executed_with_price);
        meta.feed = FEED;
        transition more;
    }

    state parse_order_cancel {
        packet.extract(hdr.order_cancel);
        meta.feed = FEED;
        transition more;
    }

    state parse_order_delete {
        packet.extract(hdr.order_delete);
        meta.feed = FEED;
        transition more;
    }

    state parse_order_replace {
        packet.extract(hdr.order_replace);
        meta.feed = FEED;
        transition more;
    }

    state parse_trade {
        packet.extract(hdr.trade);
        meta.feed = FEED;
        transition more;
    }

    state parse_cross_trade {
        packet.extract(hdr.cross_trade);
        meta.feed = FEED;
        transition more;
    }

    state parse_broken_trade {
        packet.extract(hdr.broken_trade);
        meta.feed = FEED;
        transition more;
    }

    state parse_noii {
        packet.extract(hdr.noii);
        meta.feed = FEED;
        transition more;
    }

    state parse_retail_price_improvement {
        packet.extract(hdr.retail_price_improvement);
        meta.feed = FEED;
        transition more;
    }

    state parse_direct_listing_capital_raise {
        packet.extract(hdr.direct_listing_capital_raise);
        meta.feed = FEED;
        transition more;
    }

    state rest_of_message {
        packet.extract(hdr.rest, (bit<32>) hdr.message_block.length << 3);
        transition more;
    }

    state more {
        transition select(meta.step) {
            ARRIVED: more_blocks;
            default: accept;
        }
    }

    state more_blocks {
        transition select(left) {
            0: end;
            default: next_block;
        }
    }

    state wanted_block {
        meta.events = 1;
        packet.extract(hdr.wanted.next);
        transition next_block;
    }

    state next_block {
        verify(room >= LENGTH_OCTETS, error.BadLength);
        meta.length = packet.lookahead<bit<16>>();
        room = room - LENGTH_OCTETS;
        verify(meta.length <= room, error.BadLength);
        verify(meta.length <= MESSAGE, error.TooLong);
        room = room - meta.length;
        left = left - 1;
        packet.extract(hdr.blocks.next, (bit<32>) meta.length << 3);
        transition select(meta.step, left) {
            (_, 0): end;
            (DELIVER, _): wanted_block;
            default: next_block;
        }
    }

    state end {
        verify(room == 0, error.BadLength);
        transition accept;
    }
}
