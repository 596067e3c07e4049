// Virtual trees: the labels in front of an event select its path (WERNECKE 5.2.6).
//
//   frame
//     |
//   parser: ethernet > label count > next LABELS_A_PASS labels, other labels | ipv4
//     |
//   source: ingress port -> a switch, a publisher or another host (with its address), or drop
//     |
//     |-- datagram of a tunnel ---> leave: inner frame > egress > recirculate to the parser
//     |-- no label stack ---------> route: IPv4, longest prefix > one port
//     |
//   check: is the label count correct, and does an IPv4 datagram follow the labels?
//     |
//   label_1 .. label_K, one table each: label -> tree | hop | stop
//     |      trees and hops add ports, and stops prune ports; hops and stops are removed after use
//     |
//     |-- labels remain ----------> egress > recirculate to the parser, with the ports found so far
//     |
//   send: to the added ports, except pruned ports and the ingress port
//     |-- up to 8 adjacent ports: the multicast group of exactly these ports
//     |-- otherwise: FAN_OUT, one copy per 8 ports > egress > recirculate to the parser
//     |
//   traffic manager
//     |
//   egress: removes the stack from frames for hosts
//     |
//   deparser: ethernet > label count > other labels, labels of this pass > rest of the frame
//
// The deparser emits the labels of this pass after all other labels. So every pass finds new labels at the
// front, and after the last pass, the stack has its original order. `ingress.dropped` counts dropped frames by
// the reasons in virtual_trees/sizes.p4.

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
