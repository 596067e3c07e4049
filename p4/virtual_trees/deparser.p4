// Emits the labels of this pass after the others.

control frame_deparser(packet_out packet, in headers_t hdr) {
    apply {
        EMIT_TUNNEL
        packet.emit(hdr.ethernet);
        packet.emit(hdr.stack);
        packet.emit(hdr.later);
        EACH_POSITION(EMIT_LABEL)
        packet.emit(hdr.ipv4);
        packet.emit(hdr.options);
        packet.emit(hdr.udp);
    }
}
