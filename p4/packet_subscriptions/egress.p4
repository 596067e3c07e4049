// Recirculates packets, and prunes the messages of a copy.
control egress(inout headers_t hdr, inout metadata_t meta,
               inout standard_metadata_t standard_metadata) {
    pruning() pruned;

    apply {
        if (standard_metadata.egress_rid != 0) {
            // The copy is only for one subset of the ports.
            meta.ports = meta.ports
                & ((ports_t) 0xff << (bit<8>) ((standard_metadata.egress_rid - 1) << 3));
        }
        if (meta.again == 1) {
            if (meta.ports == 0 && meta.step != EXAMINE) {
                // The packet has no port in this subset.
                mark_to_drop(standard_metadata);
            } else {
                recirculate_preserving_field_list(KEPT_FIELDS);
            }
        } else if (meta.step == DELIVER) {
            pruned.apply(hdr, meta, standard_metadata);
        }
    }
}
