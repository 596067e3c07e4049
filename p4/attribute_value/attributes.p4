// Applies DO(i) to each attribute i.
//
// Each attribute has separate parser states and a separate table, because BMv2 cannot index a header stack with
// an id that was read from the frame (KUNDEL III-E).

#define EACH_ATTRIBUTE(DO) DO(0) EACH_LATER_ATTRIBUTE(DO)
#define EACH_LATER_ATTRIBUTE(DO) TO_7(DO) TO_15(DO) TO_31(DO) TO_63(DO)
#define TO_7(DO) \
    DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#if ATTRIBUTES >= 16
#define TO_15(DO) \
    DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#else
#define TO_15(DO)
#endif
#if ATTRIBUTES >= 32
#define TO_31(DO) \
    DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) DO(24) DO(25) DO(26) DO(27) DO(28) \
    DO(29) DO(30) DO(31)
#else
#define TO_31(DO)
#endif
#if ATTRIBUTES >= 64
#define TO_63(DO) \
    DO(32) DO(33) DO(34) DO(35) DO(36) DO(37) DO(38) DO(39) DO(40) DO(41) DO(42) DO(43) DO(44) \
    DO(45) DO(46) DO(47) DO(48) DO(49) DO(50) DO(51) DO(52) DO(53) DO(54) DO(55) DO(56) DO(57) \
    DO(58) DO(59) DO(60) DO(61) DO(62) DO(63)
#else
#define TO_63(DO)
#endif

#define BIT(I) ((bitmask_t) 1 << I)

#define NAME(WORD) #WORD
#define VALUE_FIELD(I) raw_t value_##I;
#define NO_VALUE(I) meta.value_##I = 0;

// Generic table.
#define VALUE_KEY(I) meta.value_##I: ternary @name(NAME(value_##I));

// Bit vectors. A term on an absent attribute does not match.
#define VALUE_TABLE(I) \
    table value_##I { \
        key = { \
            meta.vectors: exact @name("vectors"); \
            meta.bitmask[I:I]: exact @name("present"); \
            meta.value_##I: range @name("value"); \
        } \
        actions = { \
            require; \
            @defaultonly NoAction; \
        } \
        const default_action = NoAction(); \
        size = VALUES; \
    }
#define MATCH_VALUE(I) value_##I.apply();

// State. An event without the attribute of a cell does not update the cell.
#define OPERAND(I) \
    if (meta.operand == I) { \
        operand = (value_t) meta.value_##I; \
        known = meta.bitmask[I:I]; \
    }

// Id pairs.
#define NEXT_PAIR(I) I: pair_##I;
#define TAKE_PAIR(I) \
    state pair_##I { \
        verify(meta.bitmask & BIT(I) == 0, error.IdTwice); \
        packet.extract(hdr.pairs.next); \
        meta.value_##I = hdr.pairs.last.value; \
        meta.bitmask = meta.bitmask | BIT(I); \
        meta.next_id = hdr.pairs.last.next; \
        transition next_pair; \
    }

// Bitmask.
#define NEXT_VALUE(I) BIT(I) &&& BIT(I): value_##I;
#define TAKE_VALUE(I) \
    state value_##I { \
        packet.extract(hdr.values[I]); \
        meta.value_##I = hdr.values[I].value; \
        meta.left = meta.left & ~BIT(I); \
        transition next_value; \
    }
