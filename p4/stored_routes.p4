// Stored routes: the labels of an event refer to routes that are stored in switches, and hops extend them
// (WERNECKE 4.2.2, 4.2.3, 4.3).
//
//   frame
//     |
//   parser: ethernet > label count > next LABELS_A_PASS labels, other labels | ipv4
//     |
//   source: ingress port -> a switch or publisher, another host with this address, or drop
//     |
//     |-- datagram of a tunnel ---> leave: inner frame > egress > recirculate to the parser
//     |-- no label stack ---------> route: IPv4, longest prefix > one port
//     |
//   check: the label count is correct, and an IPv4 datagram follows the labels
//     |
//   label_1 .. label_K, one table each: label -> stored | hop | root | own
//     |      first, all labels select ports; later, labels that do not continue at the port of a copy
//     |      are removed from it
//     |
//     |-- labels remain ----------> egress > recirculate to the parser
//     |
//   send: selected ports except the ingress port
//     |-- up to 8 adjacent ports: the multicast group of exactly these ports
//     |-- otherwise: FAN_OUT, one copy per 8 ports > egress > recirculate to the parser
//     |
//   traffic manager
//     |
//   egress: the stack is removed from frames to hosts; if labels have to be removed, the copy is
//     |      recirculated to the parser, and then sent to its single port
//     |
//   deparser: ethernet > label count > other labels, labels of this pass > rest of the frame
//
// This is the batch scan of 4.3.2, which examines all labels before it makes copies, so that no port gets two
// copies. It is the program of encoding `hybrid`; the other encodings are compiled with another ENCODING.
// Dropped frames are counted in `ingress.dropped` by the reasons in stored_routes/sizes.p4.

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
