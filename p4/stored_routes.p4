// Stored routes: the labels of an event refer to routes that are stored in the switches, and hop labels extend
// these routes (WERNECKE 4.2.2, 4.2.3, 4.3).
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
//   label_1 .. label_K, one table each: label -> stored | hop | root | own
//     |      in the first scan, all labels select ports; in a second scan of a copy, labels that are not
//     |      needed behind the port of the copy are removed
//     |
//     |-- labels remain ----------> egress > recirculate to the parser
//     |
//   send: to the selected ports, except the ingress port
//     |-- up to 8 adjacent ports: the multicast group of exactly these ports
//     |-- otherwise: FAN_OUT, one copy per 8 ports > egress > recirculate to the parser
//     |
//   traffic manager
//     |
//   egress: removes the stack from frames for hosts; if labels have to be removed from a copy, recirculates
//     |      it to the parser, from where it is sent to its single port
//     |
//   deparser: ethernet > label count > other labels, labels of this pass > rest of the frame
//
// This is the batch scan of 4.3.2: the program examines all labels before it makes copies, so that no port gets
// two copies. This is the program for encoding `hybrid`; other encodings are compiled with another value of
// ENCODING. `ingress.dropped` counts dropped frames by the reasons in stored_routes/sizes.p4.

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
