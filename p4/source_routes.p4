// Source routes: an event goes where the labels in front of it say, each to one switch (WERNECKE
// 3.3, 4.2.1).
//
//   frame
//     |
//   parser: ethernet > label count > the next LABELS_A_PASS labels, later ones, kept ones | ipv4
//     |
//   source: by ingress port -> a switch or a publisher, another host of this address; or dropped
//     |
//     |-- a tunnel's datagram ----> leave: the frame within > egress > again from the parser
//     |-- no stack of labels -----> route: IPv4, longest prefix > one port
//     |
//   check: the count is right, an IPv4 datagram comes after the labels
//     |
//   label_1 .. label_K, one table each: label -> own | of another switch
//     |      what stands before the first own label is taken off; a run of own labels names ports;
//     |      what follows is kept for their copies, up to the next own label; or, in port_reactive,
//     |      is theirs to the end, and the run ends where it begins
//     |
//     |-- the next own label -----> SPLIT: one copy with what is kept, one with all from there on
//     |                             > egress > each again from the parser
//     |-- labels are left --------> egress > again from the parser
//     |
//   send: the ports of this run, without the ingress port, nor links where no label is left
//     |-- up to 8 ports that are neighbours: the multicast group of just these ports
//     |-- others: FAN_OUT, one copy for each 8 ports > egress > again from the parser
//     |
//   traffic manager
//     |
//   egress: before a host the whole stack is taken off
//     |
//   deparser: ethernet > label count > labels of no pass yet, kept ones > the rest
//
// This is the program of `port`; the others are compiled from it with another ENCODING, or WIDE. What is
// dropped is counted in `ingress.dropped`, by the reasons in source_routes/sizes.p4.

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
