// Shifts masks of ports. BMv2 can shift by at most 255 bits at a time.

ports_t shift(in ports_t ports, in bit<9> by) {
    bit<8> half = by[8:8] ++ 7w0;
    return ports << by[7:0] << half << half;
}
