// One pass of an event. The result is the set of ports of one row of the generic table and of all matching terms.
// If the pass reads a cell, this result decides whether the cell applies, and the state of the cell selects the ports.

control match_event(inout metadata_t meta, in standard_metadata_t standard) {
    ports_t asked = 0;
    ports_t found = 0;
    bit<1> timed_ = 0;
    cell_t cell = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    ask_cell() cells;

    // timed is set in the first pass if a later pass reads a cell, because only the first pass knows the time.
    action take(
        bit<32> rows, bit<32> vectors, terms_t terms, bit<8> subset, bit<32> next, bit<1> timed
    ) {
        timed_ = timed;
        meta.rows = rows;
        meta.vectors = vectors;
        meta.terms = terms;
        meta.subset = subset;
        meta.pass = next;
        meta.states = 0;
    }

    // A pass that reads a cell. ``tag`` is unique among all cells that the switch ever has.
    action ask(
        bit<32> rows, bit<32> vectors, terms_t terms, bit<8> subset, bit<32> next, bit<1> timed,
        bit<32> states, bit<96> tag, bit<32> slot, bit<8> function, bit<64> window,
        bit<32> operand
    ) {
        take(rows, vectors, terms, subset, next, timed);
        meta.states = states;
        meta.operand = operand;
        cell.tag = tag;
        cell.slot = slot;
        cell.function = function;
        cell.window = window;
    }

    action take_nothing() {
        take(0, 0, 0, 0, 0, 0);
    }

    // Rows and vectors of each pass. An update of the row of pass 0 switches all events to other rows atomically.
    table passes {
        key = {
            meta.pass: exact @name("pass");
        }
        actions = {
            take;
            ask;
            @defaultonly take_nothing;
        }
        const default_action = take_nothing();
        size = PASSES;
    }

    action send_to_ports(ports_t ports) {
        asked = asked | ports;
    }

    // The generic table for all events (KUNDEL III-C, Listing 2). Its entries are prefixes, like the lpm keys
    // in the listing, but v1model permits only one lpm key per table ("multiple LPM keys in table
    // ingress.event not supported"). So the keys are ternary, and every mask is a prefix. Entries have
    // priorities, which overlapping entries need anyway. An entry without ports is a hole in another entry.
    table event {
        key = {
            meta.rows: exact @name("rows");
            meta.bitmask: ternary @name("bitmask");
            EACH_ATTRIBUTE(VALUE_KEY)
        }
        actions = {
            send_to_ports;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = EVENTS;
    }

    // Bit vectors (Lakshman and Stiliadis, SIGCOMM 1998): each attribute clears the terms that it does
    // not match. Bit p - 1 of each word is a term whose events are sent to port p, or to port p of a
    // subset if each word covers 8 ports.
    action require(terms_t terms) {
        meta.terms = meta.terms & terms;
    }

    EACH_ATTRIBUTE(VALUE_TABLE)

    apply {
        passes.apply();
        if (timed_ == 1) {
            meta.now = standard.ingress_global_timestamp;
        }
        if (meta.rows != 0) {
            event.apply();
        }
        if (meta.vectors != 0) {
            EACH_ATTRIBUTE(MATCH_VALUE)
            found = meta.terms[63:0] | meta.terms[127:64] | meta.terms[191:128]
                | meta.terms[255:192] | meta.terms[319:256] | meta.terms[383:320]
                | meta.terms[447:384] | meta.terms[511:448];
            if (meta.subset != 0) {
                found = found | found >> 32;
                found = found | found >> 16;
                found = (found | found >> 8) & 0xff;
                found = found << ((meta.subset - 1) << 3);
            }
            asked = asked | found;
        }
        if (meta.states == 0) {
            meta.ports = meta.ports | asked;
        } else if (asked != 0) {
            cells.apply(meta, cell);
        }
    }
}
