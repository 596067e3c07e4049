// Sends one copy to each port, except the ingress port.

// Skips the lowest COUNT subsets, which consist of LAST + 1 ports, if no port in them is selected.
#define PASS_BY(LAST, COUNT) \
    if (rest[LAST:0] == 0) { \
        rest = rest >> (LAST + 1); \
        subset = subset + COUNT; \
    }

control send_copies(inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        meta.ports = meta.ports & ~shift(1, meta.ingress_port - 1);
        ports_t rest = meta.ports;
        bit<16> subset = 0;
        if (rest[7:0] == 0) {
#if PORTS == 512
            PASS_BY(255, 32)
            PASS_BY(127, 16)
            PASS_BY(63, 8)
#endif
            PASS_BY(31, 4)
            PASS_BY(15, 2)
            PASS_BY(7, 1)
        }
        if (meta.ports == 0) {
            meta.reason = NO_PORT;
        } else if (rest[PORTS - 1:8] == 0) {
            standard.mcast_grp = subset << 8 | (bit<16>) rest[7:0];
        } else {
            standard.mcast_grp = FAN_OUT;
        }
    }
}
