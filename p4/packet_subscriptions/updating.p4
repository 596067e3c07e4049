// The registers of a cell after an event with this operand.
control updating(in metadata_t meta, inout cell_t cell, in value_t operand) {
    start_t after = 0;
    start_t before = 0;
    apply {
        after = (start_t) meta.now - cell.start;
        before = cell.start - (start_t) meta.now;
        if ((bit<64>) after >= cell.window && (bit<64>) before >= cell.window) {
            cell.count = 0;
        }
        if (cell.count == 0) {
            cell.start = (start_t) meta.now;
            cell.count = 1;
            cell.value = operand;
        } else {
            cell.count = cell.count |+| 1;
            if (cell.function == SUM || cell.function == AVG) {
                cell.value = cell.value |+| operand;
            } else if (cell.function == MIN) {
                if (operand < cell.value) {
                    cell.value = operand;
                }
            } else if (cell.function == MAX) {
                if (operand > cell.value) {
                    cell.value = operand;
                }
            }
        }
    }
}
