// One position of the stack: checks whether its label is for this switch, and which ports the label selects.

#define NAME_LOW_PORT(NAMED, NUMBER) NAMED = NAMED & shift(1, (bit<9>) NUMBER - 1);

#if VALUE_BITS == 16
#define NAME_PORT(NAMED, NUMBER) \
    if (NUMBER[15:9] == 0) { \
        NAME_LOW_PORT(NAMED, NUMBER) \
    } else { \
        NAMED = 0; \
    }
#else
#define NAME_PORT(NAMED, NUMBER) NAME_LOW_PORT(NAMED, NUMBER)
#endif

#define NAME_GROUP(NAMED, GROUP) \
    if (GROUP[15:8] < SUBSETS) { \
        NAMED = NAMED & shift((ports_t) GROUP[7:0], (bit<9>) GROUP[15:8] << 3); \
    } else { \
        NAMED = 0; \
    }

control label_position(
    inout stack_h stack,
    inout label_h label,
    inout label_h kept,
    inout metadata_t meta
) {
    ports_t named = 0;

    // ports: ports that the label may select. hosts: the ports among them that lead to hosts.
    action own(ports_t ports, ports_t hosts) {
        named = ports;
        meta.hosts = meta.hosts | hosts;
    }

    action of_another_switch() {
    }

    table look_up {
        key = {
            label.id: exact @name("id");
        }
        actions = {
            own;
            @defaultonly of_another_switch;
        }
        const default_action = of_another_switch();
        size = LABELS;
    }

    apply {
        if (label.isValid() && meta.another == 0) {
            if (!look_up.apply().hit) {
#ifdef REACTIVE
                if (meta.seen == OWN) {
                    meta.another = 1;
                } else {
                    stack.num_entries = stack.num_entries - 1;
                    meta.unexamined = meta.unexamined - 1;
                    label.setInvalid();
                }
#else
                if (meta.seen == FOREIGN) {
                    stack.num_entries = stack.num_entries - 1;
                } else {
                    meta.seen = KEPT;
                    kept = label;
                }
                meta.unexamined = meta.unexamined - 1;
                label.setInvalid();
            } else if (meta.seen == KEPT) {
                meta.another = 1;
#endif
            } else {
#if ENCODING == 1 || ENCODING == 6
                NAME_PORT(named, label.value)
#elif ENCODING == 2
                named = named & (ports_t) label.value;
#elif ENCODING == 3
                NAME_GROUP(named, label.value)
#elif ENCODING == 4
                if (label.tag == PORT && label.value[15:9] == 0) {
                    NAME_LOW_PORT(named, label.value)
                } else if (label.tag == BITMASK) {
                    named = named & (ports_t) label.value;
                } else if (label.tag == MC_GROUP) {
                    NAME_GROUP(named, label.value)
                } else {
                    named = 0;
                }
#endif
                meta.seen = OWN;
                meta.ports = meta.ports | named;
                stack.num_entries = stack.num_entries - 1;
                meta.unexamined = meta.unexamined - 1;
                label.setInvalid();
            }
        }
    }
}
