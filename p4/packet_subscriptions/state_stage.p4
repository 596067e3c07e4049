// State: (state, cell) -> state for the conditions, then leaf -> cells to update. A
// target with one register access per pass needs registers for each position.
control state_stage(in headers_t hdr, inout metadata_t meta,
                    in standard_metadata_t standard_metadata) {
    register<bit<96>>(1024) recent_owner;
    register<start_t>(1024) recent_start;
    register<bit<32>>(1024) recent_count;
    register<value_t>(1024) recent_value;

    cell_t cell = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
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
    action load(bit<8> block, bit<32> slot, bit<8> function, bit<64> window, bit<96> tag) {
        cell.block = block;
        cell.slot = slot;
        cell.function = function;
        cell.window = window;
        cell.tag = tag;
        operand = 0;
        known = 1;
    }
    action load_with_add_order_stock(
            bit<8> block, bit<32> slot, bit<8> function, bit<64> window, bit<96> tag) {
        load(block, slot, function, window, tag);
        operand = (value_t) hdr.add_order.stock;
        known = hdr.add_order.isValid() ? 1w1 : 1w0;
    }
    action load_with_add_order_price(
            bit<8> block, bit<32> slot, bit<8> function, bit<64> window, bit<96> tag) {
        load(block, slot, function, window, tag);
        operand = (value_t) hdr.add_order.price;
        known = hdr.add_order.isValid() ? 1w1 : 1w0;
    }
    action load_with_add_order_shares(
            bit<8> block, bit<32> slot, bit<8> function, bit<64> window, bit<96> tag) {
        load(block, slot, function, window, tag);
        operand = (value_t) hdr.add_order.shares;
        known = hdr.add_order.isValid() ? 1w1 : 1w0;
    }
    action load_with_add_order_buy_sell(
            bit<8> block, bit<32> slot, bit<8> function, bit<64> window, bit<96> tag) {
        load(block, slot, function, window, tag);
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
            load_with_add_order_stock;
            load_with_add_order_price;
            load_with_add_order_shares;
            load_with_add_order_buy_sell;
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
            load_with_add_order_stock;
            load_with_add_order_price;
            load_with_add_order_shares;
            load_with_add_order_buy_sell;
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
            load_with_add_order_stock;
            load_with_add_order_price;
            load_with_add_order_shares;
            load_with_add_order_buy_sell;
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
            load_with_add_order_stock;
            load_with_add_order_price;
            load_with_add_order_shares;
            load_with_add_order_buy_sell;
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
            load;
            load_with_add_order_stock;
            load_with_add_order_price;
            load_with_add_order_shares;
            load_with_add_order_buy_sell;
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
            load;
            load_with_add_order_stock;
            load_with_add_order_price;
            load_with_add_order_shares;
            load_with_add_order_buy_sell;
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
            load;
            load_with_add_order_stock;
            load_with_add_order_price;
            load_with_add_order_shares;
            load_with_add_order_buy_sell;
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
            load;
            load_with_add_order_stock;
            load_with_add_order_price;
            load_with_add_order_shares;
            load_with_add_order_buy_sell;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 65536;
    }

    apply {
        clock_.apply(hdr, meta, standard_metadata);

        // All conditions read the cells before the event updates them.
        if (load_1_rows.apply().hit) {
            if (cell.block == 0) {
                recent_owner.read(cell.owner, cell.slot);
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
            }
            reading_1.apply(meta, operand, cell);
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
                recent_owner.read(cell.owner, cell.slot);
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
            }
            reading_2.apply(meta, operand, cell);
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
                recent_owner.read(cell.owner, cell.slot);
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
            }
            reading_3.apply(meta, operand, cell);
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
                recent_owner.read(cell.owner, cell.slot);
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
            }
            reading_4.apply(meta, operand, cell);
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

        // The leaf then selects the cells to update.
        known = 0;
        update_1_rows.apply();
        if (known == 1) {
            if (cell.block == 0) {
                recent_owner.read(cell.owner, cell.slot);
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
            }
            updating_1.apply(meta, operand, cell);
            if (cell.block == 0) {
                recent_owner.write(cell.slot, cell.owner);
                recent_start.write(cell.slot, cell.start);
                recent_count.write(cell.slot, cell.count);
                recent_value.write(cell.slot, cell.value);
            }
        }
        known = 0;
        update_2_rows.apply();
        if (known == 1) {
            if (cell.block == 0) {
                recent_owner.read(cell.owner, cell.slot);
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
            }
            updating_2.apply(meta, operand, cell);
            if (cell.block == 0) {
                recent_owner.write(cell.slot, cell.owner);
                recent_start.write(cell.slot, cell.start);
                recent_count.write(cell.slot, cell.count);
                recent_value.write(cell.slot, cell.value);
            }
        }
        known = 0;
        update_3_rows.apply();
        if (known == 1) {
            if (cell.block == 0) {
                recent_owner.read(cell.owner, cell.slot);
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
            }
            updating_3.apply(meta, operand, cell);
            if (cell.block == 0) {
                recent_owner.write(cell.slot, cell.owner);
                recent_start.write(cell.slot, cell.start);
                recent_count.write(cell.slot, cell.count);
                recent_value.write(cell.slot, cell.value);
            }
        }
        known = 0;
        update_4_rows.apply();
        if (known == 1) {
            if (cell.block == 0) {
                recent_owner.read(cell.owner, cell.slot);
                recent_start.read(cell.start, cell.slot);
                recent_count.read(cell.count, cell.slot);
                recent_value.read(cell.value, cell.slot);
            }
            updating_4.apply(meta, operand, cell);
            if (cell.block == 0) {
                recent_owner.write(cell.slot, cell.owner);
                recent_start.write(cell.slot, cell.start);
                recent_count.write(cell.slot, cell.count);
                recent_value.write(cell.slot, cell.value);
            }
        }
    }
}
