// Each set of ports has a multicast group, whose number contains subset and mask.
control sending(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (meta.ports & 0xffffffffffffff00 == 0) {
            standard_metadata.mcast_grp = 8w0 ++ meta.ports[7:0];
        } else if (meta.ports & 0xffffffffffff00ff == 0) {
            standard_metadata.mcast_grp = 8w1 ++ meta.ports[15:8];
        } else if (meta.ports & 0xffffffffff00ffff == 0) {
            standard_metadata.mcast_grp = 8w2 ++ meta.ports[23:16];
        } else if (meta.ports & 0xffffffff00ffffff == 0) {
            standard_metadata.mcast_grp = 8w3 ++ meta.ports[31:24];
        } else if (meta.ports & 0xffffff00ffffffff == 0) {
            standard_metadata.mcast_grp = 8w4 ++ meta.ports[39:32];
        } else if (meta.ports & 0xffff00ffffffffff == 0) {
            standard_metadata.mcast_grp = 8w5 ++ meta.ports[47:40];
        } else if (meta.ports & 0xff00ffffffffffff == 0) {
            standard_metadata.mcast_grp = 8w6 ++ meta.ports[55:48];
        } else if (meta.ports & 0x00ffffffffffffff == 0) {
            standard_metadata.mcast_grp = 8w7 ++ meta.ports[63:56];
        } else {
            standard_metadata.mcast_grp = FAN_OUT;
            // One copy is made for each subset, and recirculated.
            meta.again = 1;
        }
    }
}
