// Computes the value that a condition reads from the registers of a cell.
control reading(in metadata_t meta, in value_t operand, inout cell_t cell) {
    closing() closing_;
    bit<128> divisor = 0;
    bit<128> less = 0;
    bit<128> work = 0;

    // Restoring division, because no target can divide: remainder above, quotient
    // below. If the divisor fits, it is subtracted above, and 1 is set below.
    action divide() {
        divisor = (bit<128>) cell.count << 64;
        less = divisor - 1;
        work = (bit<128>) cell.value;
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        work = work << 1;
        if (work >= divisor) {
            work = work - less;
        }
        cell.value = work[63:0];
    }

    apply {
        closing_.apply(meta, operand, cell);
        cell.known = 1;
        if (cell.function == MOVED) {
            cell.value = 0;
            if (cell.count == 0) {
                cell.value = 1;
            }
        } else if (cell.count == 0) {
            cell.value = 0;
            if (cell.function != COUNT && cell.function != SUM) {
                cell.known = 0;
            }
        } else if (cell.function == COUNT) {
            cell.value = (value_t) cell.count;
        } else if (cell.function == AVG) {
            divide();
        }
    }
}
