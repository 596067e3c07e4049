// Attribute/value events: a switch forwards an event to the ports whose rules match its attributes (KUNDEL III).
//
//   frame
//     |
//   parser: ethernet > 0x9001, by destination: first id > (value, next id) ... > id 0
//     |                                   | bitmask > values, by ascending id
//     |              > 0x0800: ipv4
//     |
//     |      one state per attribute; attribute i is always stored in meta.value_i,
//     |      absent attributes are 0, and bit i of meta.bitmask is set if attribute i is present
//     |
//     |-- truncated, unknown or repeated id, no attribute ----------> drop, counted
//   source: ingress port -> a switch or publisher, another host with this address, or drop
//     |
//     |-- IPv4 -----------------------------> route: longest prefix > one port
//     |-- ARP, IPv6 ------------------------> bridge: Ethernet destination > ports
//     |
//   passes: pass -> rows, vectors, next pass
//     |
//   event: (rows, bitmask, value_0 .. value_n) -> ports
//     |
//   value_0 .. value_n: (vectors, present, value) -> matching terms; terms that all tables match -> ports
//     |                  or, if the pass reads a cell: whether the cell applies to the event
//     |
//   states: (states, value of the cell) -> ports; then the event updates the cell
//     |
//     |-- another pass ---> egress > recirculate to the parser, with the ports so far
//     |
//   send: the ports of all passes, except the ingress port
//     |-- up to 8 adjacent ports: the multicast group of exactly these ports
//     |-- otherwise: FAN_OUT, one copy per 8 ports > egress > recirculate to the parser
//     |
//   traffic manager > egress
//     |
//   deparser: the unchanged event
//
// The program does not contain any names of attributes. A new attribute gets a free id, and only the table
// entries change. Rules whose rows add up are entries of `event`; rules whose rows would multiply are terms
// of bit vectors. Dropped frames are counted in `ingress.dropped` by the reasons in attribute_value/sizes.p4.

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
