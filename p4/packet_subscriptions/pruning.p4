// Removes the messages of a copy that do not match the rules of its port.
control pruning(inout headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    ports_t mine = 0;
    bit<16> removed = 0;
    bit<16> octets = 0;

    apply {
        mine = (ports_t) 1 << (bit<8>) (standard_metadata.egress_port - 1);
        if (hdr.wanted[0].ports & mine == 0) {
            removed = removed + 1;
            octets = octets + hdr.blocks[0].length + LENGTH_OCTETS;
            hdr.blocks[0].setInvalid();
        }
        hdr.wanted[0].setInvalid();
        if (hdr.wanted[1].isValid() && hdr.wanted[1].ports & mine == 0) {
            removed = removed + 1;
            octets = octets + hdr.blocks[1].length + LENGTH_OCTETS;
            hdr.blocks[1].setInvalid();
        }
        hdr.wanted[1].setInvalid();
        if (hdr.wanted[2].isValid() && hdr.wanted[2].ports & mine == 0) {
            removed = removed + 1;
            octets = octets + hdr.blocks[2].length + LENGTH_OCTETS;
            hdr.blocks[2].setInvalid();
        }
        hdr.wanted[2].setInvalid();
        if (hdr.wanted[3].isValid() && hdr.wanted[3].ports & mine == 0) {
            removed = removed + 1;
            octets = octets + hdr.blocks[3].length + LENGTH_OCTETS;
            hdr.blocks[3].setInvalid();
        }
        hdr.wanted[3].setInvalid();
        if (hdr.wanted[4].isValid() && hdr.wanted[4].ports & mine == 0) {
            removed = removed + 1;
            octets = octets + hdr.blocks[4].length + LENGTH_OCTETS;
            hdr.blocks[4].setInvalid();
        }
        hdr.wanted[4].setInvalid();
        if (hdr.wanted[5].isValid() && hdr.wanted[5].ports & mine == 0) {
            removed = removed + 1;
            octets = octets + hdr.blocks[5].length + LENGTH_OCTETS;
            hdr.blocks[5].setInvalid();
        }
        hdr.wanted[5].setInvalid();
        if (hdr.wanted[6].isValid() && hdr.wanted[6].ports & mine == 0) {
            removed = removed + 1;
            octets = octets + hdr.blocks[6].length + LENGTH_OCTETS;
            hdr.blocks[6].setInvalid();
        }
        hdr.wanted[6].setInvalid();
        if (hdr.wanted[7].isValid() && hdr.wanted[7].ports & mine == 0) {
            removed = removed + 1;
            octets = octets + hdr.blocks[7].length + LENGTH_OCTETS;
            hdr.blocks[7].setInvalid();
        }
        hdr.wanted[7].setInvalid();
        if (hdr.wanted[8].isValid()) {
            if (hdr.wanted[8].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[8].length + LENGTH_OCTETS;
                hdr.blocks[8].setInvalid();
            }
            hdr.wanted[8].setInvalid();
            if (hdr.wanted[9].isValid() && hdr.wanted[9].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[9].length + LENGTH_OCTETS;
                hdr.blocks[9].setInvalid();
            }
            hdr.wanted[9].setInvalid();
            if (hdr.wanted[10].isValid() && hdr.wanted[10].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[10].length + LENGTH_OCTETS;
                hdr.blocks[10].setInvalid();
            }
            hdr.wanted[10].setInvalid();
            if (hdr.wanted[11].isValid() && hdr.wanted[11].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[11].length + LENGTH_OCTETS;
                hdr.blocks[11].setInvalid();
            }
            hdr.wanted[11].setInvalid();
            if (hdr.wanted[12].isValid() && hdr.wanted[12].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[12].length + LENGTH_OCTETS;
                hdr.blocks[12].setInvalid();
            }
            hdr.wanted[12].setInvalid();
            if (hdr.wanted[13].isValid() && hdr.wanted[13].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[13].length + LENGTH_OCTETS;
                hdr.blocks[13].setInvalid();
            }
            hdr.wanted[13].setInvalid();
            if (hdr.wanted[14].isValid() && hdr.wanted[14].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[14].length + LENGTH_OCTETS;
                hdr.blocks[14].setInvalid();
            }
            hdr.wanted[14].setInvalid();
            if (hdr.wanted[15].isValid() && hdr.wanted[15].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[15].length + LENGTH_OCTETS;
                hdr.blocks[15].setInvalid();
            }
            hdr.wanted[15].setInvalid();
        }
        if (hdr.wanted[16].isValid()) {
            if (hdr.wanted[16].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[16].length + LENGTH_OCTETS;
                hdr.blocks[16].setInvalid();
            }
            hdr.wanted[16].setInvalid();
            if (hdr.wanted[17].isValid() && hdr.wanted[17].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[17].length + LENGTH_OCTETS;
                hdr.blocks[17].setInvalid();
            }
            hdr.wanted[17].setInvalid();
            if (hdr.wanted[18].isValid() && hdr.wanted[18].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[18].length + LENGTH_OCTETS;
                hdr.blocks[18].setInvalid();
            }
            hdr.wanted[18].setInvalid();
            if (hdr.wanted[19].isValid() && hdr.wanted[19].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[19].length + LENGTH_OCTETS;
                hdr.blocks[19].setInvalid();
            }
            hdr.wanted[19].setInvalid();
            if (hdr.wanted[20].isValid() && hdr.wanted[20].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[20].length + LENGTH_OCTETS;
                hdr.blocks[20].setInvalid();
            }
            hdr.wanted[20].setInvalid();
            if (hdr.wanted[21].isValid() && hdr.wanted[21].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[21].length + LENGTH_OCTETS;
                hdr.blocks[21].setInvalid();
            }
            hdr.wanted[21].setInvalid();
            if (hdr.wanted[22].isValid() && hdr.wanted[22].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[22].length + LENGTH_OCTETS;
                hdr.blocks[22].setInvalid();
            }
            hdr.wanted[22].setInvalid();
            if (hdr.wanted[23].isValid() && hdr.wanted[23].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[23].length + LENGTH_OCTETS;
                hdr.blocks[23].setInvalid();
            }
            hdr.wanted[23].setInvalid();
        }
        if (hdr.wanted[24].isValid()) {
            if (hdr.wanted[24].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[24].length + LENGTH_OCTETS;
                hdr.blocks[24].setInvalid();
            }
            hdr.wanted[24].setInvalid();
            if (hdr.wanted[25].isValid() && hdr.wanted[25].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[25].length + LENGTH_OCTETS;
                hdr.blocks[25].setInvalid();
            }
            hdr.wanted[25].setInvalid();
            if (hdr.wanted[26].isValid() && hdr.wanted[26].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[26].length + LENGTH_OCTETS;
                hdr.blocks[26].setInvalid();
            }
            hdr.wanted[26].setInvalid();
            if (hdr.wanted[27].isValid() && hdr.wanted[27].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[27].length + LENGTH_OCTETS;
                hdr.blocks[27].setInvalid();
            }
            hdr.wanted[27].setInvalid();
            if (hdr.wanted[28].isValid() && hdr.wanted[28].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[28].length + LENGTH_OCTETS;
                hdr.blocks[28].setInvalid();
            }
            hdr.wanted[28].setInvalid();
            if (hdr.wanted[29].isValid() && hdr.wanted[29].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[29].length + LENGTH_OCTETS;
                hdr.blocks[29].setInvalid();
            }
            hdr.wanted[29].setInvalid();
            if (hdr.wanted[30].isValid() && hdr.wanted[30].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[30].length + LENGTH_OCTETS;
                hdr.blocks[30].setInvalid();
            }
            hdr.wanted[30].setInvalid();
            if (hdr.wanted[31].isValid() && hdr.wanted[31].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[31].length + LENGTH_OCTETS;
                hdr.blocks[31].setInvalid();
            }
            hdr.wanted[31].setInvalid();
        }
        if (hdr.wanted[32].isValid()) {
            if (hdr.wanted[32].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[32].length + LENGTH_OCTETS;
                hdr.blocks[32].setInvalid();
            }
            hdr.wanted[32].setInvalid();
            if (hdr.wanted[33].isValid() && hdr.wanted[33].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[33].length + LENGTH_OCTETS;
                hdr.blocks[33].setInvalid();
            }
            hdr.wanted[33].setInvalid();
            if (hdr.wanted[34].isValid() && hdr.wanted[34].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[34].length + LENGTH_OCTETS;
                hdr.blocks[34].setInvalid();
            }
            hdr.wanted[34].setInvalid();
            if (hdr.wanted[35].isValid() && hdr.wanted[35].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[35].length + LENGTH_OCTETS;
                hdr.blocks[35].setInvalid();
            }
            hdr.wanted[35].setInvalid();
            if (hdr.wanted[36].isValid() && hdr.wanted[36].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[36].length + LENGTH_OCTETS;
                hdr.blocks[36].setInvalid();
            }
            hdr.wanted[36].setInvalid();
            if (hdr.wanted[37].isValid() && hdr.wanted[37].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[37].length + LENGTH_OCTETS;
                hdr.blocks[37].setInvalid();
            }
            hdr.wanted[37].setInvalid();
            if (hdr.wanted[38].isValid() && hdr.wanted[38].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[38].length + LENGTH_OCTETS;
                hdr.blocks[38].setInvalid();
            }
            hdr.wanted[38].setInvalid();
            if (hdr.wanted[39].isValid() && hdr.wanted[39].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[39].length + LENGTH_OCTETS;
                hdr.blocks[39].setInvalid();
            }
            hdr.wanted[39].setInvalid();
        }
        if (hdr.wanted[40].isValid()) {
            if (hdr.wanted[40].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[40].length + LENGTH_OCTETS;
                hdr.blocks[40].setInvalid();
            }
            hdr.wanted[40].setInvalid();
            if (hdr.wanted[41].isValid() && hdr.wanted[41].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[41].length + LENGTH_OCTETS;
                hdr.blocks[41].setInvalid();
            }
            hdr.wanted[41].setInvalid();
            if (hdr.wanted[42].isValid() && hdr.wanted[42].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[42].length + LENGTH_OCTETS;
                hdr.blocks[42].setInvalid();
            }
            hdr.wanted[42].setInvalid();
            if (hdr.wanted[43].isValid() && hdr.wanted[43].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[43].length + LENGTH_OCTETS;
                hdr.blocks[43].setInvalid();
            }
            hdr.wanted[43].setInvalid();
            if (hdr.wanted[44].isValid() && hdr.wanted[44].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[44].length + LENGTH_OCTETS;
                hdr.blocks[44].setInvalid();
            }
            hdr.wanted[44].setInvalid();
            if (hdr.wanted[45].isValid() && hdr.wanted[45].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[45].length + LENGTH_OCTETS;
                hdr.blocks[45].setInvalid();
            }
            hdr.wanted[45].setInvalid();
            if (hdr.wanted[46].isValid() && hdr.wanted[46].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[46].length + LENGTH_OCTETS;
                hdr.blocks[46].setInvalid();
            }
            hdr.wanted[46].setInvalid();
            if (hdr.wanted[47].isValid() && hdr.wanted[47].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[47].length + LENGTH_OCTETS;
                hdr.blocks[47].setInvalid();
            }
            hdr.wanted[47].setInvalid();
        }
        if (hdr.wanted[48].isValid()) {
            if (hdr.wanted[48].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[48].length + LENGTH_OCTETS;
                hdr.blocks[48].setInvalid();
            }
            hdr.wanted[48].setInvalid();
            if (hdr.wanted[49].isValid() && hdr.wanted[49].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[49].length + LENGTH_OCTETS;
                hdr.blocks[49].setInvalid();
            }
            hdr.wanted[49].setInvalid();
            if (hdr.wanted[50].isValid() && hdr.wanted[50].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[50].length + LENGTH_OCTETS;
                hdr.blocks[50].setInvalid();
            }
            hdr.wanted[50].setInvalid();
            if (hdr.wanted[51].isValid() && hdr.wanted[51].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[51].length + LENGTH_OCTETS;
                hdr.blocks[51].setInvalid();
            }
            hdr.wanted[51].setInvalid();
            if (hdr.wanted[52].isValid() && hdr.wanted[52].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[52].length + LENGTH_OCTETS;
                hdr.blocks[52].setInvalid();
            }
            hdr.wanted[52].setInvalid();
            if (hdr.wanted[53].isValid() && hdr.wanted[53].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[53].length + LENGTH_OCTETS;
                hdr.blocks[53].setInvalid();
            }
            hdr.wanted[53].setInvalid();
            if (hdr.wanted[54].isValid() && hdr.wanted[54].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[54].length + LENGTH_OCTETS;
                hdr.blocks[54].setInvalid();
            }
            hdr.wanted[54].setInvalid();
            if (hdr.wanted[55].isValid() && hdr.wanted[55].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[55].length + LENGTH_OCTETS;
                hdr.blocks[55].setInvalid();
            }
            hdr.wanted[55].setInvalid();
        }
        if (hdr.wanted[56].isValid()) {
            if (hdr.wanted[56].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[56].length + LENGTH_OCTETS;
                hdr.blocks[56].setInvalid();
            }
            hdr.wanted[56].setInvalid();
            if (hdr.wanted[57].isValid() && hdr.wanted[57].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[57].length + LENGTH_OCTETS;
                hdr.blocks[57].setInvalid();
            }
            hdr.wanted[57].setInvalid();
            if (hdr.wanted[58].isValid() && hdr.wanted[58].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[58].length + LENGTH_OCTETS;
                hdr.blocks[58].setInvalid();
            }
            hdr.wanted[58].setInvalid();
            if (hdr.wanted[59].isValid() && hdr.wanted[59].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[59].length + LENGTH_OCTETS;
                hdr.blocks[59].setInvalid();
            }
            hdr.wanted[59].setInvalid();
            if (hdr.wanted[60].isValid() && hdr.wanted[60].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[60].length + LENGTH_OCTETS;
                hdr.blocks[60].setInvalid();
            }
            hdr.wanted[60].setInvalid();
            if (hdr.wanted[61].isValid() && hdr.wanted[61].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[61].length + LENGTH_OCTETS;
                hdr.blocks[61].setInvalid();
            }
            hdr.wanted[61].setInvalid();
            if (hdr.wanted[62].isValid() && hdr.wanted[62].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[62].length + LENGTH_OCTETS;
                hdr.blocks[62].setInvalid();
            }
            hdr.wanted[62].setInvalid();
            if (hdr.wanted[63].isValid() && hdr.wanted[63].ports & mine == 0) {
                removed = removed + 1;
                octets = octets + hdr.blocks[63].length + LENGTH_OCTETS;
                hdr.blocks[63].setInvalid();
            }
            hdr.wanted[63].setInvalid();
        }
        if (removed != 0) {
            hdr.moldudp64.count = hdr.moldudp64.count - removed;
            hdr.udp.length = hdr.udp.length - octets;
            hdr.ipv4.length = hdr.ipv4.length - octets;
            if (hdr.udp.checksum != 0) {
                meta.summed = 1;
            }
        }
    }
}
