// Virtual trees as the text forwards by them (WERNECKE 5.2.6), to be measured beside ours.
//
//   frame
//     |
//   parser: ethernet > label count > all labels
//     |
//   ingress: the label at `position`
//     |-- the frame itself: ports that wait, or else those that hop or tree names
//     |      > next_port takes one of them > a clone, unless served already or where it came in
//     |-- a clone: dropped if the label is the stop of its port
//     |
//   egress: a used hop is taken off, or the next label is stepped to once no port waits
//     |-- labels are left --------> again from the parser, frame and clones alike
//     |-- none: a clone leaves by its port, the frame itself ends
//
// So a pass serves one port or steps over one label. What the listings leave open is settled so:
//
// - A clone does not take along the ports that wait: with them it would step to no other label.
// - The frame itself ends in egress. In the listings ingress ends it once its count is 0, which is
//   never so for a stack with a tree, and where egress would send it they do not say.
// - The stop of a port is looked up by label and port, so it ends the clone for that port. In other
//   clones it stays, as do own hops behind the label that made the clone: to switches further on
//   they mean nothing.
// - Hosts get the stack, too: nothing takes it off.
// - v1model's parser cannot reject: a frame of another EtherType, of no labels or of more than
//   MAX_LABELS is dropped by ingress.
// - A label is read and taken off by tables with an action for each position, as in the text's
//   older programs (3.3.1).
//
// `ingress.passes` is ours: it counts what is measured.

#include <core.p4>
#include <v1model.p4>

#define MAX_LABELS 64

// DO(n) for each position n of the stack.
#define FOUR(DO, N) DO(N##0) DO(N##1) DO(N##2) DO(N##3)
#define TEN(DO, N) \
    FOUR(DO, N) DO(N##4) DO(N##5) DO(N##6) DO(N##7) DO(N##8) DO(N##9)
#define EACH_POSITION(DO) \
    TEN(DO, ) TEN(DO, 1) TEN(DO, 2) TEN(DO, 3) TEN(DO, 4) TEN(DO, 5) FOUR(DO, 6)

#define READ(N) action read_##N() { meta.label = hdr.labels[N].value; }
#define READ_NAME(N) read_##N;
#define READ_AT(N) N: read_##N();

#define TAKE_OFF(N) action take_off_##N() { hdr.labels[N].setInvalid(); }
#define TAKE_OFF_NAME(N) take_off_##N;
#define TAKE_OFF_AT(N) N: take_off_##N();

const bit<16> STACK = 0x9999;

typedef bit<9> port_t;
typedef bit<64> ports_t;  // bit p - 1 is port p
const port_t NO_PORT = 0;

// Entries of a table.
const int TREES = 16384;
const int LINKS = 64;

// standard_metadata.instance_type
const bit<32> INGRESS_CLONE = 1;

// Metadata that a clone takes into egress, and what goes round with a frame.
#define CLONED 1
#define CARRIED 2

// Indexes of the counter.
const bit<32> PASSES_OF_FRAMES = 0;
const bit<32> PASSES_OF_CLONES = 1;

header ethernet_h {
    bit<48> dst;
    bit<48> src;
    bit<16> type_;
}

header stack_h {
    bit<16> num_entries;
}

header label_h {
    bit<16> value;  // type in the top 2 bits: 01 tree, 10 hop, 11 stop
}

struct headers_t {
    ethernet_h ethernet;
    stack_h stack;
    label_h[MAX_LABELS] labels;
}

struct metadata_t {
    @field_list(CLONED, CARRIED) bit<16> position;  // of the label that is looked at
    @field_list(CLONED) bit<1> used;           // the label is a hop that has been served
    @field_list(CARRIED) ports_t waiting;      // named by the label, and not looked at yet
    @field_list(CARRIED) ports_t served;
    @field_list(CARRIED) port_t ingress_port;
    @field_list(CARRIED) port_t clone_port;    // by which this clone leaves; NO_PORT: it is none
    bit<16> unparsed;  // labels that the parser has still to take
    bit<16> label;
    port_t port;       // that this pass looks at
}

parser frame_parser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type_) {
            STACK: stack;
            default: accept;
        }
    }

    state stack {
        packet.extract(hdr.stack);
        meta.unparsed = hdr.stack.num_entries;
        transition labels;
    }

    state labels {
        transition select(meta.unparsed) {
            0: accept;
            default: label;
        }
    }

    state label {
        packet.extract(hdr.labels.next);
        meta.unparsed = meta.unparsed - 1;
        transition labels;
    }
}

control verify_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}

control ingress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    counter(2, CounterType.packets) passes;

    action serve(ports_t ports) {
        meta.waiting = ports;
    }

    action serve_once(ports_t ports) {
        meta.waiting = ports;
        meta.used = 1;
    }

    action take(port_t port) {
        meta.port = port;
    }

    EACH_POSITION(READ)

    table read {
        key = {
            meta.position: exact @name("position");
        }
        actions = {
            EACH_POSITION(READ_NAME)
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            EACH_POSITION(READ_AT)
        }
    }

    table hop {
        key = {
            meta.label: exact @name("label");
        }
        actions = {
            serve_once;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = LINKS;
    }

    table tree {
        key = {
            meta.label: exact @name("label");
        }
        actions = {
            serve;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = TREES;
    }

    table stop {
        key = {
            meta.label: exact @name("label");
            meta.clone_port: exact @name("port");
        }
        actions = {
            NoAction;
        }
        const default_action = NoAction();
        size = LINKS;
    }

    // A row a port, each for the masks whose lowest bit is the port's.
    table next_port {
        key = {
            meta.waiting: ternary @name("ports");
        }
        actions = {
            take;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = LINKS;
    }

    apply {
        meta.used = 0;
        if (
            standard.parser_error != error.NoError
            || !hdr.stack.isValid() || hdr.stack.num_entries == 0
        ) {
            mark_to_drop(standard);
        } else {
            read.apply();
            if (meta.clone_port == NO_PORT) {
                passes.count(PASSES_OF_FRAMES);
                if (standard.ingress_port != NO_PORT) {
                    // The first pass: a frame that goes round loses the port it came in by.
                    meta.ingress_port = standard.ingress_port;
                }
                if (meta.waiting != 0 || hop.apply().hit || tree.apply().hit) {
                    if (next_port.apply().hit) {
                        ports_t bit_of_port = (ports_t) 1 << (bit<8>) (meta.port - 1);
                        meta.waiting = meta.waiting & ~bit_of_port;
                        if (meta.served & bit_of_port == 0 && meta.ingress_port != meta.port) {
                            meta.served = meta.served | bit_of_port;
                            clone_preserving_field_list(
                                CloneType.I2E, (bit<32>) meta.port, CLONED
                            );
                        }
                    }
                }
            } else {
                passes.count(PASSES_OF_CLONES);
                if (stop.apply().hit) {
                    mark_to_drop(standard);
                } else {
                    standard.egress_spec = meta.clone_port;
                }
            }
        }
    }
}

control egress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard
) {
    EACH_POSITION(TAKE_OFF)

    table take_off {
        key = {
            meta.position: exact @name("position");
        }
        actions = {
            EACH_POSITION(TAKE_OFF_NAME)
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            EACH_POSITION(TAKE_OFF_AT)
        }
    }

    apply {
        if (standard.instance_type == INGRESS_CLONE) {
            meta.clone_port = standard.egress_port;
        }
        if (meta.used == 1) {
            take_off.apply();
            hdr.stack.num_entries = hdr.stack.num_entries - 1;
        } else if (meta.waiting == 0) {
            meta.position = meta.position + 1;
        }
        if (hdr.stack.num_entries > meta.position) {
            recirculate_preserving_field_list(CARRIED);
        } else if (meta.clone_port == NO_PORT) {
            mark_to_drop(standard);
        }
    }
}

control update_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}

control frame_deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.stack);
        packet.emit(hdr.labels);
    }
}

@pkginfo(name = "text_virtual_trees")
V1Switch(
    frame_parser(),
    verify_checksums(),
    ingress(),
    egress(),
    update_checksums(),
    frame_deparser()
) main;
