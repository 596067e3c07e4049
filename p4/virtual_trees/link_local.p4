// Control traffic between neighbors, which routers do not forward: IGMP to group addresses, the addresses that
// RFC 5771 reserves for such protocols (mDNS, OSPF, VRRP and others), and broadcasts, for example from DHCP.
//
// Hosts and routers in every network send such traffic, and some of them do not have an address yet. Such frames
// are therefore not counted as frames with a forged address.

const bit<8> IGMP = 2;
const bit<4> GROUPS = 0xE;                       // 224.0.0.0/4
const bit<24> LOCAL_NETWORK_CONTROL = 0xE00000;  // 224.0.0.0/24
const bit<32> BROADCAST = 0xFFFFFFFF;

bool is_link_local(in bit<8> protocol, in bit<32> dst) {
    return (protocol == IGMP && dst[31:28] == GROUPS) || dst[31:8] == LOCAL_NETWORK_CONTROL
        || dst == BROADCAST;
}
