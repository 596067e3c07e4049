// Replicated state: updates go to who holds a replica, as switches remember (STARE III-E).
//
//   frame
//     |
//   parser: ethernet > ipv4 > udp, of 239.0.0.0/8
//     |
//   source: by ingress port -> a switch, a publisher or another host of this address; or dropped
//     |
//     |-- no state's message -----> route: IPv4, longest prefix > one port
//     |
//   check: checksum and lengths
//     |
//   tree: the ports of the links that all messages of states take, and those before hosts
//     |
//   states, by the state's number:
//     |-- publish ----------------> the ports behind which somebody subscribed
//     |-- SUB-register -----------> its port is kept; on to the links of the tree that none went
//     |                             out by in this round
//     |-- SUB-remove -------------> its port is forgotten; on by a link behind which nobody is
//     |                             left whom another port could serve
//     |-- SUB-ack ----------------> from nobody
//     |
//   send: these ports, but the one that it came in by; for a register or remove of a host that one
//     |     too, for the ack
//     |-- up to 8 ports that are neighbours: the multicast group of just these ports
//     |-- others: FAN_OUT, one copy for each 8 ports > egress > again from the parser
//     |
//   traffic manager
//     |
//   egress: what goes back to who asked is made the ack
//     |
//   deparser
//
// Ports are kept in registers, each for one to two times 2^lease microseconds after it was last
// registered: so a message that was lost and a switch that lost its registers are healed by the
// next refresh, and who died is forgotten. state_replication_table.p4 keeps them in a table. What is
// dropped is counted in `ingress.dropped`, by the reasons in state_replication/sizes.p4.

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
