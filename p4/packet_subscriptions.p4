// Packet subscriptions for the message format 'itch'.
//
// Made by ./spark-submit.sh make p4: do not edit.
//
//   packet <------------------------------------------------------------+
//     |                                                                 |
//   parser ethernet > ipv4 > udp > moldudp64 > message_block > system_event | stock_directory |
//     |    stock_trading_action | reg_sho_restriction | market_participant_position |
//     |    mwcb_decline_level | mwcb_status | ipo_quoting_period | luld_auction_collar |
//     |    operational_halt | add_order | add_order_mpid | order_executed |
//     |    order_executed_with_price | order_cancel | order_delete | order_replace | trade |
//     |    cross_trade | broken_trade | noii | retail_price_improvement |
//     |    direct_listing_capital_raise
//     |                                                                 |
//     |-- cut short, or lengths or checksums wrong ----> drop, counted  |
//   source: by ingress port -> a switch or a publisher,                 |
//     |       another host of this address; or dropped, counted         |
//     |-- no event ------------------------------------> route: IPv4,   |
//     |                                          longest prefix         |
//   start: feed -> state                                                |
//     |                                                                 |
//   8 times: state -> up to 4 fields; (state, their values) -> ports    |
//     |                                                                 |
//   one stage a field: (state, value) -> state, or terms that it allows |
//     |  message_type: exact, otherwise (8 bits)                        |
//     |  add_order_stock: exact, otherwise (64 bits)                    |
//     |  add_order_price: exact, range, otherwise (32 bits)             |
//     |  add_order_shares: exact, range, otherwise (32 bits)            |
//     |  add_order_buy_sell: exact, otherwise (8 bits)                  |
//     |                                                                 |
//   state: 4 times (state -> cell), (state, what it holds) -> state,    |
//     |    then 4 times (leaf -> cell, operand): update the cell        |
//     |    registers: recent[1024]                                      |
//     |                                                                 |
//   leaf: state -> ports, or the ports of all terms that are left       |
//     |                                                                 |
//     |-- another group of rules: again                                 |
//     |                                                                 |
//     |-- another message: remember the ports, and again                |
//     |-- after the last of several: the ports of all, and again        |
//     |                                                                 |
//   sending: ports -> multicast group of the ports in one subset of 8;  |
//     |    ports in several subsets: a copy for each, and again         |
//   traffic manager > egress -------------------------------------------+
//     |    pruning: messages that the port does not want come off
//     |
//   deparser

#include <core.p4>
#include <v1model.p4>

#include "packet_subscriptions/sizes.p4"
#include "packet_subscriptions/headers.p4"
#include "packet_subscriptions/metadata.p4"
#include "packet_subscriptions/parser.p4"
#include "packet_subscriptions/message_type_stage.p4"
#include "packet_subscriptions/add_order_stock_stage.p4"
#include "packet_subscriptions/add_order_price_stage.p4"
#include "packet_subscriptions/add_order_shares_stage.p4"
#include "packet_subscriptions/add_order_buy_sell_stage.p4"
#include "packet_subscriptions/cell.p4"
#include "packet_subscriptions/clock.p4"
#include "packet_subscriptions/closing.p4"
#include "packet_subscriptions/reading.p4"
#include "packet_subscriptions/updating.p4"
#include "packet_subscriptions/state_stage.p4"
#include "packet_subscriptions/conjunctions.p4"
#include "packet_subscriptions/leaf.p4"
#include "packet_subscriptions/one_event.p4"
#include "packet_subscriptions/source.p4"
#include "packet_subscriptions/ipv4_route.p4"
#include "packet_subscriptions/sending.p4"
#include "packet_subscriptions/ingress.p4"
#include "packet_subscriptions/pruning.p4"
#include "packet_subscriptions/egress.p4"
#include "packet_subscriptions/verify_checksums.p4"
#include "packet_subscriptions/compute_checksums.p4"
#include "packet_subscriptions/event_deparser.p4"

@pkginfo(name = "packet_subscriptions")
V1Switch(event_parser(), verify_checksums(), ingress(), egress(), compute_checksums(),
         event_deparser()) main;
