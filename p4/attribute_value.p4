// Attribute/value events: a switch forwards an event to the ports whose rules match its attributes (KUNDEL III).
//
//   frame
//     |
//   parser: ethernet > 0x9001, by destination: first id > (value, next id) ... > id 0
//     |                                   | bitmask > values, by ascending id
//     |              > 0x0800: ipv4
//     |
//     |      there is one state per attribute; meta.value_i always contains attribute i,
//     |      or 0 if it is absent; bit i of meta.bitmask is set if attribute i is present
//     |
//     |-- truncated, id unknown or repeated, no attributes ----------> drop and count
//   source: ingress port -> a switch, a publisher or another host (with its address), or drop
//     |
//     |-- IPv4 -----------------------------> route: longest prefix > one port
//     |-- ARP, IPv6 ------------------------> bridge: Ethernet destination > ports
//     |
//   passes: pass -> rows, vectors, next pass
//     |
//   event: (rows, bitmask, value_0 .. value_n) -> ports
//     |
//   value_0 .. value_n: (vectors, present, value) -> matching terms; terms that match in all tables -> ports
//     |                  (if the pass reads a cell: the result decides whether the cell applies to the event)
//     |
//   states: (states, value of the cell) -> ports; then the event updates the cell
//     |
//     |-- another pass ---> egress > recirculate to the parser, with the ports found so far
//     |
//   send: to the ports of all passes, except the ingress port
//     |-- up to 8 adjacent ports: the multicast group of exactly these ports
//     |-- otherwise: FAN_OUT, one copy per 8 ports > egress > recirculate to the parser
//     |
//   traffic manager > egress
//     |
//   deparser: the unchanged event
//
// The program contains no attribute names. A new attribute gets an unused id, and only table entries have to
// change. Rules whose rows add up are entries of `event`; rules whose rows would multiply are terms of bit
// vectors. `ingress.dropped` counts dropped frames by the reasons in attribute_value/sizes.p4.

#include <core.p4>
#include <v1model.p4>

#include "attribute_value/sizes.p4"
#include "virtual_trees/shift.p4"
#include "attribute_value/attributes.p4"
#include "attribute_value/headers.p4"
#include "attribute_value/parser.p4"
#include "virtual_trees/verify_checksums.p4"
#include "virtual_trees/link_local.p4"
#include "virtual_trees/source.p4"
#include "virtual_trees/route.p4"
#include "virtual_trees/send.p4"
#include "packet_subscriptions/cell.p4"
#include "packet_subscriptions/closing.p4"
#include "packet_subscriptions/reading.p4"
#include "packet_subscriptions/updating.p4"
#include "attribute_value/state.p4"
#include "attribute_value/match.p4"
#include "attribute_value/bridge.p4"
#include "attribute_value/ingress.p4"
#include "attribute_value/egress.p4"
#include "virtual_trees/update_checksums.p4"
#include "attribute_value/deparser.p4"

@pkginfo(name = "attribute_value")
V1Switch(
    frame_parser(),
    verify_checksums(),
    ingress(),
    egress(),
    update_checksums(),
    frame_deparser()
) main;
