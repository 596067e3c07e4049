// Functions of cells, with their numbers in the entries.
const bit<8> COUNT = 0;
const bit<8> SUM = 1;
const bit<8> AVG = 2;
const bit<8> MIN = 3;
const bit<8> MAX = 4;
const bit<8> MOVED = 5;

struct cell_t {
    bit<8> block;  // number of the counter that the registers belong to
    bit<32> slot;
    bit<8> function;
    bit<64> window;
    bit<96> tag;
    bit<96> owner;  // tag of the cell that wrote the registers
    start_t start;
    bit<32> count;
    value_t value;
    bit<1> known;
}
