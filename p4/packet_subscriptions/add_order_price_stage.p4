// add_order.price: exact, range, otherwise (32 bits)
control add_order_price_stage(in headers_t hdr, inout metadata_t meta) {
    bool found = false;

    action set_state(state_t next) {
        meta.state = next;
    }
    action require(terms_t terms) {
        meta.terms = meta.terms & terms;
    }

    @name("exact")
    table exact_rows {
        key = {
            meta.state : exact @name("state");
            hdr.add_order.price : exact @name("value");
        }
        actions = {
            set_state;
            require;
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
            require;
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
            require;
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
