// Replicated state: switches remember the ports that lead to replicas, and send updates there (STARE III-E).
//
//   frame
//     |
//   parser: ethernet > ipv4 > udp, to 239.0.0.0/8
//     |
//   source: ingress port -> a switch, a publisher, another host with this address, or drop
//     |
//     |-- no message of a state --> route: IPv4, longest prefix > one port
//     |
//   check: checksum and lengths are correct
//     |
//   tree: the ports of the links that all messages of states use, and the ports that lead to hosts
//     |
//   states, by the number of the state:
//     |-- publish ----------------> the ports that lead to subscribers
//     |-- SUB-register -----------> remember its port; forward it on the links of the tree that have
//     |                             not had one in this period
//     |-- SUB-remove -------------> forget its port; forward it on the links that no longer need
//     |                             updates from this switch
//     |-- SUB-ack ----------------> drop
//     |
//   send: these ports except the ingress port, which is included for the ack of a register or remove
//     |     from a host
//     |-- up to 8 adjacent ports: the multicast group of exactly these ports
//     |-- otherwise: FAN_OUT, one copy per 8 ports > egress > recirculate to the parser
//     |
//   traffic manager
//     |
//   egress: the copy to the sender is changed into the ack
//     |
//   deparser
//
// Registers contain each port for one to two times 2^lease microseconds after its last registration. So
// the next refresh recovers from a lost message or lost registers, and subscribers that have ended are
// forgotten. state_replication_table.p4 uses a table instead. Dropped frames are counted in
// `ingress.dropped` by the reasons in state_replication/sizes.p4.

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
