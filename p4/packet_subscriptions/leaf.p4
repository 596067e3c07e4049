// The leaf: who gets the event.
control leaf(inout metadata_t meta) {
    action deliver(ports_t ports) {
        meta.ports = ports;
    }
    action drop() {
        meta.ports = 0;
    }

    @name("leaf")
    table leaf_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            deliver;
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
