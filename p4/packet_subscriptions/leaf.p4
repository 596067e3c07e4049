// The leaf of an event, which contains its ports.
control leaf(inout metadata_t meta) {
    terms_t found = 0;

    action deliver(ports_t ports) {
        meta.ports = meta.ports | ports;
    }
    // Bits that belong to no term are ignored.
    action deliver_terms(terms_t terms) {
        found = meta.terms & terms;
        meta.ports = meta.ports | (
            found[63:0]
            | found[127:64]
            | found[191:128]
            | found[255:192]);
    }

    @name("leaf")
    table leaf_rows {
        key = {
            meta.state : exact @name("state");
        }
        actions = {
            deliver;
            deliver_terms;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = ROWS;
    }

    apply {
        leaf_rows.apply();
    }
}
