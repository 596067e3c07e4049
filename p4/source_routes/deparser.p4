// Emits the unexamined labels before the kept labels.

control frame_deparser(packet_out packet, in headers_t hdr) {
    apply {
        EMIT_TUNNEL
        packet.emit(hdr.ethernet);
        packet.emit(hdr.stack);
        EACH_POSITION(EMIT_NEXT)
        packet.emit(hdr.later);
        packet.emit(hdr.kept);
        EACH_POSITION(EMIT_KEPT)
        packet.emit(hdr.ipv4);
        packet.emit(hdr.options);
        packet.emit(hdr.udp);
    }
}
