// Matches one event against one group of rules, from the first state to the leaf and its updates.
control one_event(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    conjunctions() conjunctions_1;
    conjunctions() conjunctions_2;
    conjunctions() conjunctions_3;
    conjunctions() conjunctions_4;
    conjunctions() conjunctions_5;
    conjunctions() conjunctions_6;
    conjunctions() conjunctions_7;
    conjunctions() conjunctions_8;
    message_type_stage() message_type;
    add_order_stock_stage() add_order_stock;
    add_order_price_stage() add_order_price;
    add_order_shares_stage() add_order_shares;
    add_order_buy_sell_stage() add_order_buy_sell;
    state_stage() cells;
    leaf() delivery;
    state_t root = 0;
    bool begun = true;

    action set_state(state_t next) {
        meta.state = next;
    }
    action set_next(state_t next) {
        meta.next = next;
    }

    // An update of the single row switches all events to other states atomically.
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

    // Maps the first state of a group to the first state of the next group.
    @name("next")
    table next_rows {
        key = {
            root : exact @name("state");
        }
        actions = {
            set_next;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 16;
    }

    apply {
        if (meta.next != 0) {
            meta.state = meta.next;
            meta.next = 0;
        } else {
            meta.ports = 0;
            if (start_rows.apply().miss) {
                begun = false;
            }
        }
        if (begun) {
            root = meta.state;
            meta.terms = 0xffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff;
            conjunctions_1.apply(hdr, meta);
            conjunctions_2.apply(hdr, meta);
            conjunctions_3.apply(hdr, meta);
            conjunctions_4.apply(hdr, meta);
            conjunctions_5.apply(hdr, meta);
            conjunctions_6.apply(hdr, meta);
            conjunctions_7.apply(hdr, meta);
            conjunctions_8.apply(hdr, meta);
            message_type.apply(hdr, meta);
            add_order_stock.apply(hdr, meta);
            add_order_price.apply(hdr, meta);
            add_order_shares.apply(hdr, meta);
            add_order_buy_sell.apply(hdr, meta);
            cells.apply(hdr, meta, standard_metadata);
            delivery.apply(meta);
            next_rows.apply();
        }
    }
}
