// message_type: exact, otherwise (8 bits)
control message_type_stage(in headers_t hdr, inout metadata_t meta) {
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
            meta.message_type : exact @name("value");
        }
        actions = {
            set_state;
            require;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 4608;
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
        size = 18;
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
