control frame_deparser(packet_out packet, in headers_t hdr) {
    apply {
#ifdef EMBEDDED_CONTROLLER
        packet.emit(hdr.packet_in);
#endif
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.options);
        packet.emit(hdr.udp);
    }
}
