// State of one pass. Rows and vectors determine whether the cell applies to an event. If it does, the current
// value of the cell selects the ports, and then the event updates the cell.


control ask_cell(inout metadata_t meta, inout cell_t cell) {
    register<bit<96>>(CELLS) owners;
    register<start_t>(CELLS) starts;
    register<bit<32>>(CELLS) counts;
    register<value_t>(CELLS) values;
    value_t operand = 0;
    bit<1> known = 0;
    reading() read;
    updating() update;

    action send_to_ports(ports_t ports) {
        meta.ports = meta.ports | ports;
    }

    table states {
        key = {
            meta.states: exact @name("states");
            cell.value: range @name("value");
        }
        actions = {
            send_to_ports;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = STATES;
    }

    action load() {
        owners.read(cell.owner, cell.slot);
        starts.read(cell.start, cell.slot);
        counts.read(cell.count, cell.slot);
        values.read(cell.value, cell.slot);
    }

    apply {
        EACH_ATTRIBUTE(OPERAND)
        if (meta.operand == NO_OPERAND) {
            known = 1;
        }
        load();
        read.apply(meta, operand, cell);
        if (cell.function == MOVED) {
            cell.known = known;
        }
        if (cell.known == 1) {
            states.apply();
        }
        if (known == 1) {
            load();
            update.apply(meta, operand, cell);
            owners.write(cell.slot, cell.owner);
            starts.write(cell.slot, cell.start);
            counts.write(cell.slot, cell.count);
            values.write(cell.slot, cell.value);
        }
    }
}
