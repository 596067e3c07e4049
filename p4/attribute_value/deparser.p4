// Emits the event unchanged.

control frame_deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.first);
        packet.emit(hdr.pairs);
        packet.emit(hdr.bitmask);
        packet.emit(hdr.values);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.options);
    }
}
