// Sends one copy to each of some ports, never back where the frame came in.

control send_copies(inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        // A port above PORTS is in no mask.
        if (meta.ingress_port <= PORTS) {
            meta.ports = meta.ports & ~(64w1 << (bit<8>) (meta.ingress_port - 1));
        }
        if (meta.ports == 0) {
            meta.reason = NO_PORT;
        } else if ((meta.ports & ~64w0xff) == 0) {
            standard.mcast_grp = (bit<16>) meta.ports;
        } else if ((meta.ports & ~(64w0xff << 8)) == 0) {
            standard.mcast_grp = 1 << 8 | (bit<16>) (meta.ports >> 8);
        } else if ((meta.ports & ~(64w0xff << 16)) == 0) {
            standard.mcast_grp = 2 << 8 | (bit<16>) (meta.ports >> 16);
        } else if ((meta.ports & ~(64w0xff << 24)) == 0) {
            standard.mcast_grp = 3 << 8 | (bit<16>) (meta.ports >> 24);
        } else if ((meta.ports & ~(64w0xff << 32)) == 0) {
            standard.mcast_grp = 4 << 8 | (bit<16>) (meta.ports >> 32);
        } else if ((meta.ports & ~(64w0xff << 40)) == 0) {
            standard.mcast_grp = 5 << 8 | (bit<16>) (meta.ports >> 40);
        } else if ((meta.ports & ~(64w0xff << 48)) == 0) {
            standard.mcast_grp = 6 << 8 | (bit<16>) (meta.ports >> 48);
        } else if ((meta.ports & ~(64w0xff << 56)) == 0) {
            standard.mcast_grp = 7 << 8 | (bit<16>) (meta.ports >> 56);
        } else {
            standard.mcast_grp = FAN_OUT;
        }
    }
}
