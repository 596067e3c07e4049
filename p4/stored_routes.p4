// Stored routes: an event goes where switches hold that its labels lead, and where hops add to it
// (WERNECKE 4.2.2, 4.2.3, 4.3).
//
//   frame
//     |
//   parser: ethernet > label count > the next LABELS_A_PASS labels, the other labels | ipv4
//     |
//   source: by ingress port -> a switch or a publisher, another host of this address; or dropped
//     |
//     |-- a tunnel's datagram ----> leave: the frame within > egress > again from the parser
//     |-- no stack of labels -----> route: IPv4, longest prefix > one port
//     |
//   check: the count is right, an IPv4 datagram comes after the labels
//     |
//   label_1 .. label_K, one table each: label -> stored | hop | root | own
//     |      first all labels choose ports; later, in a copy, those are taken off that do not lead
//     |      on by its port
//     |
//     |-- labels are left --------> egress > again from the parser
//     |
//   send: chosen ports, without the ingress port
//     |-- up to 8 ports that are neighbours: the multicast group of just these ports
//     |-- others: FAN_OUT, one copy for each 8 ports > egress > again from the parser
//     |
//   traffic manager
//     |
//   egress: before a host the whole stack is taken off; where labels are to be taken off, the copy
//     |      goes again from the parser, and then out of its one port
//     |
//   deparser: ethernet > label count > the other labels, the labels of this pass > the rest
//
// This is the batch scan of 4.3.2: all labels first, then the copies, so no port has two. It is the
// program of `hybrid`; the others are compiled from it with another ENCODING. What is dropped is
// counted in `ingress.dropped`, by the reasons in stored_routes/sizes.p4.

#ifndef PROGRAM
#define PROGRAM "stored_routes"
#endif

#include <core.p4>
#include <v1model.p4>

#include "stored_routes/sizes.p4"
#include "virtual_trees/shift.p4"
#include "virtual_trees/positions.p4"
#include "tunnel/headers.p4"
#include "stored_routes/headers.p4"
#include "stored_routes/parser.p4"
#include "virtual_trees/verify_checksums.p4"
#include "virtual_trees/link_local.p4"
#include "virtual_trees/source.p4"
#include "virtual_trees/check.p4"
#include "stored_routes/label.p4"
#include "virtual_trees/send.p4"
#include "virtual_trees/route.p4"
#include "tunnel/ends.p4"
#include "stored_routes/ingress.p4"
#include "stored_routes/egress.p4"
#include "tunnel/update_checksums.p4"
#include "virtual_trees/deparser.p4"

@pkginfo(name = PROGRAM)
V1Switch(
    frame_parser(),
    verify_checksums(),
    ingress(),
    egress(),
    update_checksums(),
    frame_deparser()
) main;
