// What a single copy still needs.

control egress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    // By the port that an event came in by.
    counter(PORTS, CounterType.packets) turned_back;

    apply {
        // A group is for all ports that want an event, whichever of them it came in by.
        if (meta.event == 1 && standard.egress_port == standard.ingress_port) {
            turned_back.count((bit<32>) standard.ingress_port);
            mark_to_drop(standard);
        }
    }
}
