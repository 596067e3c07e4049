// Updates the checksum of the IPv4 header, because routing changes the time to live.

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
    }
}
