// Headers from the specification, and additional headers that the program needs.
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

header options_h {
    varbit<OPTIONS_BITS> values;
}

// A message of the datagram, and a message whose type is not in the specification.
header block_h {
    bit<16> length;
    varbit<MESSAGE_BITS> message;
}

header rest_h {
    varbit<MESSAGE_BITS> message;
}

// The ports of a message, which precede the message.
header wanted_h {
    ports_t ports;
}

// Examined messages, each preceded by its ports.
header examined_h {
    varbit<EXAMINED_BITS> messages;
}

error {
    BadLength,
    TooManyMessages,
    TooLong
}

struct headers_t {
    ethernet_h ethernet;
    ipv4_h ipv4;
    options_h options;
    udp_h udp;
    moldudp64_h moldudp64;
    examined_h examined;
    wanted_h wanted_now;
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
    rest_h rest;
    wanted_h[MESSAGES] wanted;
    block_h[MESSAGES] blocks;
}
