// The registers of a cell to what a condition sees.
control reading(in metadata_t meta, inout cell_t cell) {
    start_t after = 0;
    start_t before = 0;
    bit<128> divisor = 0;
    bit<128> less = 0;
    bit<128> work = 0;

    // Restoring division, as no target divides: remainder above, quotient below, and
    // where the divisor fits, it is taken off above and 1 is put in below.
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
        cell.known = 1;
        // Times differ around the clock, either way.
        after = (start_t) meta.now - cell.start;
        before = cell.start - (start_t) meta.now;
        if ((bit<64>) after >= cell.window && (bit<64>) before >= cell.window) {
            cell.count = 0;
        }
        if (cell.count == 0) {
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
