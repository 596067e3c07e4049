// One position of the stack: applies its label to the ports of this switch.

#define TOP_BIT(LABEL, N) LABEL.value[LABEL_BITS - N:LABEL_BITS - N]

control label_position(inout stack_h stack, inout label_h label, inout metadata_t meta) {
    action tree(ports_t ports) {
        meta.ports = meta.ports | ports;
    }

    action hop(ports_t ports) {
        meta.ports = meta.ports | ports;
        stack.num_entries = stack.num_entries - 1;
        label.setInvalid();
    }

    action stop(ports_t ports) {
        meta.pruned = meta.pruned | ports;
        stack.num_entries = stack.num_entries - 1;
        label.setInvalid();
    }

    // The label is for another switch, or has type 00.
    action pass_by() {
        meta.untyped = meta.untyped | ~(TOP_BIT(label, 1) | TOP_BIT(label, 2));
    }

    table look_up {
        key = {
            label.value: exact @name("label");
        }
        actions = {
            tree;
            hop;
            stop;
            @defaultonly pass_by;
        }
        const default_action = pass_by();
        size = LABELS;
    }

    apply {
        if (label.isValid()) {
            look_up.apply();
        }
    }
}
