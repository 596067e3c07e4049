// One position of the stack: determines the ports that its label selects or, in a copy with cut, whether
// the label is needed behind the port of the copy.

control label_position(inout stack_h stack, inout label_h label, inout metadata_t meta) {
    ports_t named = 0;
    bit<1> goes = 1;

    action stored(ports_t ports) {
        named = ports;
    }

#if ENCODING == 3
    action hop(ports_t ports) {
        named = ports;
    }

    action root() {
    }
#endif

#if ENCODING == 4
    // The label is for this switch, which has these ports.
    action own(ports_t ports) {
        meta.own = 1;
        meta.under = ports;
    }
#endif

    action of_another_switch() {
    }

    table look_up {
        key = {
            label.value: exact @name("label");
        }
        actions = {
            stored;
#if ENCODING == 3
            hop;
            root;
#endif
#if ENCODING == 4
            own;
#endif
            @defaultonly of_another_switch;
        }
        const default_action = of_another_switch();
        size = LABELS;
    }

    // A stored label. Two stored labels rarely use the same ports, and a label that this switch does
    // not have uses no port.
    action choose_stored() {
        meta.uneven = meta.uneven | meta.stored;
        meta.stored = 1;
        meta.along = meta.along | named;
        meta.ports = meta.ports | named;
    }

    apply {
        if (label.isValid()) {
#if ENCODING == 4
            bit<2> type_ = label.value[15:14];
            if (type_ == PORTS_OF) {
                if (meta.own == 1) {
                    goes = 0;
                    if (meta.cut == 0) {
                        meta.ports = meta.ports | ((ports_t) label.value[10:0]
                            << (BLOCK * (bit<8>) label.value[13:11]) & meta.under);
                    }
                } else if ((meta.under & meta.ports) == 0) {
                    goes = 0;
                }
            } else {
                meta.own = 0;
                look_up.apply();
                if (meta.own == 1) {
                    goes = 0;
                } else {
                    meta.under = named;
                    if (meta.cut == 0) {
                        choose_stored();
                    }
                    if ((named & meta.ports) == 0) {
                        goes = 0;
                    }
                }
            }
#else
            bit<1> known = 0;
            if (look_up.apply().hit) {
                known = 1;
            }
#if ENCODING == 3
            bit<2> type_ = label.value[15:14];
            if (type_ == ROOT) {
                meta.own = known;
                meta.under = 0;
                if (known == 1) {
                    goes = 0;
                }
            } else if (type_ == HOP && meta.own == 1) {
                if (known == 1) {
                    meta.under = named;
                    goes = 0;
                    if (meta.cut == 0) {
                        meta.ports = meta.ports | named;
                    }
                } else if (meta.cut == 0 || (meta.under & meta.ports) == 0) {
                    goes = 0;
                }
            } else if (type_ == TREE) {
#endif
                if (meta.cut == 0) {
                    choose_stored();
                }
                if ((named & meta.ports) == 0) {
                    goes = 0;
                }
#if ENCODING == 3
            } else if (type_ != HOP) {
                goes = 0;
            }
            // Roots and hops of other switches are kept or removed together with the stored labels.
            if (meta.cut == 1 && meta.along == 0 && meta.own == 0 && (type_ == ROOT || type_ == HOP)) {
                goes = 0;
            }
#endif
#endif
            if (goes == 0) {
                if (meta.cut == 1) {
                    stack.num_entries = stack.num_entries - 1;
                    label.setInvalid();
                } else {
                    meta.uneven = 1;
                }
            }
        }
    }
}
