// Empties a cell whose window has ended. Time differences wrap around in both directions. A
// window of MOVED ends with a value that differs by this amount from the first value of the
// window. Contents of the registers that belong to another cell are discarded.
control closing(in metadata_t meta, in value_t operand, inout cell_t cell) {
    start_t after = 0;
    start_t before = 0;
    bit<64> away = 0;
    apply {
        if (cell.function == MOVED) {
            away = operand - cell.value;
            if (operand < cell.value) {
                away = cell.value - operand;
            }
        } else {
            after = (start_t) meta.now - cell.start;
            before = cell.start - (start_t) meta.now;
            away = (bit<64>) after;
            if (before < after) {
                away = (bit<64>) before;
            }
        }
        if (away >= cell.window || cell.owner != cell.tag) {
            cell.count = 0;
        }
    }
}
