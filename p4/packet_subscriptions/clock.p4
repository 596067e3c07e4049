// The time of an event (1000 units per microsecond): its own clock, or the clock of the switch.
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
        } else {
            meta.now = (bit<64>) hdr.direct_listing_capital_raise.timestamp;
        }
    }
}
