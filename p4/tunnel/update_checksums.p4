// Updates the IPv4 checksums of routed frames, whose time to live changes, and of tunnel datagrams.

control update_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
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
        update_checksum(
            hdr.outer_ipv4.isValid(),
            {
                hdr.outer_ipv4.version, hdr.outer_ipv4.ihl, hdr.outer_ipv4.tos,
                hdr.outer_ipv4.length, hdr.outer_ipv4.id, hdr.outer_ipv4.flags,
                hdr.outer_ipv4.offset, hdr.outer_ipv4.ttl, hdr.outer_ipv4.protocol,
                hdr.outer_ipv4.src, hdr.outer_ipv4.dst
            },
            hdr.outer_ipv4.checksum,
            HashAlgorithm.csum16
        );
    }
}
