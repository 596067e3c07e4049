// Empties a cell whose window is over: times differ around the clock, either way. That of
// MOVED is over for a value which is as far from the one that opened it. What another cell
// has left in the registers is nothing to this one.
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
