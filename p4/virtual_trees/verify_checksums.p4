// Verifies the IPv4 header checksum of frames without a stack. After a stack, the IPv4 header is payload.

control verify_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(
            hdr.ipv4.isValid(),
            {
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length,
                hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.offset,
                hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst,
                hdr.options.values
            },
            hdr.ipv4.checksum,
            HashAlgorithm.csum16
        );
    }
}
