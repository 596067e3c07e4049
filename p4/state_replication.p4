// Replicated state: switches remember which ports lead to replicas, and send updates to them (STARE III-E).
//
//   frame
//     |
//   parser: ethernet > ipv4 > udp, to 239.0.0.0/8
//     |
//   source: ingress port -> a switch, a publisher or another host (with its address), or drop
//     |
//     |-- not a state message ----> route: IPv4, longest prefix > one port
//     |
//   check: are the checksum and the lengths correct?
//     |
//   tree: ports to the links that all state messages use, and ports to hosts
//     |
//   states: by the number of the state,
//     |-- publish ----------------> send to the ports that lead to subscribers
//     |-- SUB-register -----------> remember its ingress port; forward it on the links of the tree that
//     |                             have not yet been sent a register in this period
//     |-- SUB-remove -------------> forget its ingress port; forward it on the links that no longer
//     |                             need updates from this switch
//     |-- SUB-ack ----------------> drop
//     |
//   send: to these ports, except the ingress port; if a host has sent a register or remove, the ack is
//     |     sent to the ingress port
//     |-- up to 8 adjacent ports: the multicast group of exactly these ports
//     |-- otherwise: FAN_OUT, one copy per 8 ports > egress > recirculate to the parser
//     |
//   traffic manager
//     |
//   egress: turns the copy for the sender into the ack
//     |
//   deparser
//
// The registers remember a port for 2^lease to 2 * 2^lease microseconds after its last registration. If a
// message or the contents of the registers are lost, the next refresh restores them, and subscribers that have
// ended are forgotten. state_replication_table.p4 uses a table instead. `ingress.dropped` counts dropped
// frames by the reasons in state_replication/sizes.p4.

#ifndef PROGRAM
#define PROGRAM "state_replication"
#endif

#include <core.p4>
#include <v1model.p4>

#include "state_replication/sizes.p4"
#include "virtual_trees/shift.p4"
#include "state_replication/headers.p4"
#include "state_replication/parser.p4"
#include "virtual_trees/verify_checksums.p4"
#include "virtual_trees/link_local.p4"
#include "state_replication/source.p4"
#include "state_replication/check.p4"
#include "state_replication/registers.p4"
#include "state_replication/table.p4"
#include "virtual_trees/send.p4"
#include "virtual_trees/route.p4"
#include "state_replication/ingress.p4"
#include "state_replication/egress.p4"
#include "virtual_trees/update_checksums.p4"
#include "state_replication/deparser.p4"

@pkginfo(name = PROGRAM)
V1Switch(
    frame_parser(),
    verify_checksums(),
    ingress(),
    egress(),
    update_checksums(),
    frame_deparser()
) main;
