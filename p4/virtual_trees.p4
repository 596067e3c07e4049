// Virtual trees: an event goes where the labels in front of it say (WERNECKE 5.2.6).
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
//   label_1 .. label_K, one table each: label -> tree | hop | stop
//     |      trees and hops gather ports, stops prune ports; used hop and stop labels are taken off
//     |
//     |-- labels are left --------> egress > again from the parser, with the ports of this pass
//     |
//   send: gathered ports, without pruned ones and the ingress port
//     |-- up to 8 ports that are neighbours: the multicast group of just these ports
//     |-- others: FAN_OUT, one copy for each 8 ports > egress > again from the parser
//     |
//   traffic manager
//     |
//   egress: before a host the whole stack is taken off
//     |
//   deparser: ethernet > label count > the other labels, the labels of this pass > the rest
//
// The deparser puts the labels of this pass behind the others, so every pass finds new labels in
// front, and after the last pass the stack is in its old order. What is dropped is counted in
// `ingress.dropped`, by the reasons in virtual_trees/sizes.p4.

#ifndef PROGRAM
#define PROGRAM "virtual_trees"
#endif

#include <core.p4>
#include <v1model.p4>

#include "virtual_trees/sizes.p4"
#include "virtual_trees/shift.p4"
#include "virtual_trees/positions.p4"
#include "tunnel/headers.p4"
#include "virtual_trees/headers.p4"
#include "virtual_trees/parser.p4"
#include "virtual_trees/verify_checksums.p4"
#include "virtual_trees/link_local.p4"
#include "virtual_trees/source.p4"
#include "virtual_trees/check.p4"
#include "virtual_trees/label.p4"
#include "virtual_trees/send.p4"
#include "virtual_trees/route.p4"
#include "tunnel/ends.p4"
#include "virtual_trees/ingress.p4"
#include "virtual_trees/egress.p4"
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
