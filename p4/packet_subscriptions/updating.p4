// Updates the registers of a cell for an event with this operand.
control updating(in metadata_t meta, in value_t operand, inout cell_t cell) {
    closing() closing_;
    apply {
        closing_.apply(meta, operand, cell);
        cell.owner = cell.tag;
        if (cell.count == 0) {
            cell.start = (start_t) meta.now;
            cell.count = 1;
            cell.value = operand;
        } else if (cell.function != MOVED) {
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
