// Conjunctions of single values: the values of several fields form one key.
control conjunctions(in headers_t hdr, inout metadata_t meta) {
    bit<64> value_1 = 0;
    bit<64> value_2 = 0;
    bit<64> value_3 = 0;
    bit<64> value_4 = 0;

    action take_message_type_1() {
        value_1 = (bit<64>) meta.message_type;
    }
    action take_add_order_stock_1() {
        value_1 = (bit<64>) hdr.add_order.stock;
    }
    action take_add_order_price_1() {
        value_1 = (bit<64>) hdr.add_order.price;
    }
    action take_add_order_shares_1() {
        value_1 = (bit<64>) hdr.add_order.shares;
    }
    action take_add_order_buy_sell_1() {
        value_1 = (bit<64>) hdr.add_order.buy_sell;
    }
    action take_message_type_2() {
        value_2 = (bit<64>) meta.message_type;
    }
    action take_add_order_stock_2() {
        value_2 = (bit<64>) hdr.add_order.stock;
    }
    action take_add_order_price_2() {
        value_2 = (bit<64>) hdr.add_order.price;
    }
    action take_add_order_shares_2() {
        value_2 = (bit<64>) hdr.add_order.shares;
    }
    action take_add_order_buy_sell_2() {
        value_2 = (bit<64>) hdr.add_order.buy_sell;
    }
    action take_message_type_3() {
        value_3 = (bit<64>) meta.message_type;
    }
    action take_add_order_stock_3() {
        value_3 = (bit<64>) hdr.add_order.stock;
    }
    action take_add_order_price_3() {
        value_3 = (bit<64>) hdr.add_order.price;
    }
    action take_add_order_shares_3() {
        value_3 = (bit<64>) hdr.add_order.shares;
    }
    action take_add_order_buy_sell_3() {
        value_3 = (bit<64>) hdr.add_order.buy_sell;
    }
    action take_message_type_4() {
        value_4 = (bit<64>) meta.message_type;
    }
    action take_add_order_stock_4() {
        value_4 = (bit<64>) hdr.add_order.stock;
    }
    action take_add_order_price_4() {
        value_4 = (bit<64>) hdr.add_order.price;
    }
    action take_add_order_shares_4() {
        value_4 = (bit<64>) hdr.add_order.shares;
    }
    action take_add_order_buy_sell_4() {
        value_4 = (bit<64>) hdr.add_order.buy_sell;
    }
    action deliver(ports_t ports) {
        meta.ports = meta.ports | ports;
    }

    @name("field_1")
    table field_1_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            take_message_type_1;
            take_add_order_stock_1;
            take_add_order_price_1;
            take_add_order_shares_1;
            take_add_order_buy_sell_1;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 16;
    }

    @name("field_2")
    table field_2_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            take_message_type_2;
            take_add_order_stock_2;
            take_add_order_price_2;
            take_add_order_shares_2;
            take_add_order_buy_sell_2;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 16;
    }

    @name("field_3")
    table field_3_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            take_message_type_3;
            take_add_order_stock_3;
            take_add_order_price_3;
            take_add_order_shares_3;
            take_add_order_buy_sell_3;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 16;
    }

    @name("field_4")
    table field_4_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            take_message_type_4;
            take_add_order_stock_4;
            take_add_order_price_4;
            take_add_order_shares_4;
            take_add_order_buy_sell_4;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 16;
    }

    @name("keys")
    table keys_rows {
        key = {
            meta.state : exact @name("state");
            value_1 : exact @name("value_1");
            value_2 : exact @name("value_2");
            value_3 : exact @name("value_3");
            value_4 : exact @name("value_4");
        }
        actions = {
            deliver;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    apply {
        if (field_1_rows.apply().hit) {
            field_2_rows.apply();
            field_3_rows.apply();
            field_4_rows.apply();
            keys_rows.apply();
        }
    }
}
