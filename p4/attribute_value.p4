// Attribute/value events: who gets an event is matched on its attributes (KUNDEL III).
//
//   frame
//     |
//   parser: ethernet > 0x9001, by destination: first id > (value, next id) ... > id 0
//     |                                   | bitmask > values, by ascending id
//     |              > 0x0800: ipv4
//     |
//     |      a state for each attribute; attribute i always ends up in meta.value_i,
//     |      what is absent is 0, and bit i of meta.bitmask tells which are there
//     |
//     |-- cut short, an id unknown or there twice, no attribute ----> drop, counted
//   source: by ingress port -> a switch or a publisher, another host of this address; or dropped
//     |
//     |-- IPv4 -----------------------------> route: longest prefix > one port
//     |-- ARP, IPv6 ------------------------> bridge: Ethernet destination > ports
//     |
//   passes: pass -> rows, vectors, the next pass
//     |
//   event: (rows, bitmask, value_0 .. value_n) -> ports
//     |
//   value_0 .. value_n: (vectors, present, value) -> terms that it leaves; those left by all -> ports
//     |                  or, of a pass that asks a cell: whether the cell knows of the event
//     |
//   states: (states, value of the cell) -> ports; then the event updates the cell
//     |
//     |-- another pass ---> egress > again from the parser, with the ports so far
//     |
//   send: the ports of all passes, without the one that the event came in by
//     |-- up to 8 ports that are neighbours: the multicast group of just these ports
//     |-- others: FAN_OUT, one copy for each 8 ports > egress > again from the parser
//     |
//   traffic manager > egress
//     |
//   deparser: the event as it came
//
// The program knows no attribute by name: one that is new takes an id that was free, and entries are
// all that ever changes. Rules that add up are rows of `event`, all others terms of bit vectors. What
// is dropped is counted in `ingress.dropped`, by the reasons in attribute_value/sizes.p4.

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
