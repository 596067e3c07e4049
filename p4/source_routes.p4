// Source routes: the labels in front of an event select its path, and each label is addressed to one switch
// (WERNECKE 3.3, 4.2.1).
//
//   frame
//     |
//   parser: ethernet > label count > next LABELS_A_PASS labels, later labels, kept labels | ipv4
//     |
//   source: ingress port -> a switch, a publisher or another host (with its address), or drop
//     |
//     |-- datagram of a tunnel ---> leave: inner frame > egress > recirculate to the parser
//     |-- no label stack ---------> route: IPv4, longest prefix > one port
//     |
//   check: is the label count correct, and does an IPv4 datagram follow the labels?
//     |
//   label_1 .. label_K, one table each: label -> for this switch (own) | for another switch
//     |      labels before the first own label are removed; a run of own labels selects ports,
//     |      whose copies keep the labels that follow, up to the next own label; in port_reactive,
//     |      the copies keep all remaining labels, and the run ends before the first of these labels
//     |
//     |-- another run begins -----> SPLIT: one copy with the kept labels, one with all remaining labels
//     |                             > egress > recirculate both copies to the parser
//     |-- labels remain ----------> egress > recirculate to the parser
//     |
//   send: to the ports of this run, except the ingress port; if no labels remain, only to hosts
//     |-- up to 8 adjacent ports: the multicast group of exactly these ports
//     |-- otherwise: FAN_OUT, one copy per 8 ports > egress > recirculate to the parser
//     |
//   traffic manager
//     |
//   egress: removes the stack from frames for hosts
//     |
//   deparser: ethernet > label count > unexamined labels, kept labels > rest of the frame
//
// This is the program for encoding `port`; other encodings are compiled with another value of ENCODING, or with
// WIDE. `ingress.dropped` counts dropped frames by the reasons in source_routes/sizes.p4.

#ifndef PROGRAM
#define PROGRAM "source_routes"
#endif

#include <core.p4>
#include <v1model.p4>

#include "source_routes/sizes.p4"
#include "virtual_trees/shift.p4"
#include "source_routes/positions.p4"
#include "tunnel/headers.p4"
#include "source_routes/headers.p4"
#include "source_routes/parser.p4"
#include "virtual_trees/verify_checksums.p4"
#include "virtual_trees/link_local.p4"
#include "virtual_trees/source.p4"
#include "source_routes/check.p4"
#include "source_routes/label.p4"
#include "virtual_trees/send.p4"
#include "virtual_trees/route.p4"
#include "tunnel/ends.p4"
#include "source_routes/ingress.p4"
#include "source_routes/egress.p4"
#include "tunnel/update_checksums.p4"
#include "source_routes/deparser.p4"

@pkginfo(name = PROGRAM)
V1Switch(
    frame_parser(),
    verify_checksums(),
    ingress(),
    egress(),
    update_checksums(),
    frame_deparser()
) main;
