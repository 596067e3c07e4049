// Applies DO(n, n - 1) to each position n = 1 .. LABELS_A_PASS of a pass.
//
// Each position has separate headers, a parser state and a table, because P4 has no loops, and an element of a
// header stack must be copied before it can be the key of a table.

#define UP_TO_1(DO) DO(1, 0)
#define UP_TO_2(DO) UP_TO_1(DO) DO(2, 1)
#define UP_TO_4(DO) UP_TO_2(DO) DO(3, 2) DO(4, 3)
#define UP_TO_8(DO) UP_TO_4(DO) DO(5, 4) DO(6, 5) DO(7, 6) DO(8, 7)
#define UP_TO_16(DO) UP_TO_8(DO) \
    DO(9, 8) DO(10, 9) DO(11, 10) DO(12, 11) DO(13, 12) DO(14, 13) DO(15, 14) DO(16, 15)
#define UP_TO_(N, DO) UP_TO_##N(DO)
#define UP_TO(N, DO) UP_TO_(N, DO)
#define EACH_POSITION(DO) UP_TO(LABELS_A_PASS, DO)

#define NEXT_HEADER(N, BEFORE) label_h next_##N;
#define KEPT_HEADER(N, BEFORE) label_h kept_##N;
#define TAKE_LABEL(N, BEFORE) \
    state taken_##BEFORE { \
        transition select(meta.unexamined - BEFORE) { \
            0: others; \
            default: take_##N; \
        } \
    } \
    state take_##N { \
        packet.extract(hdr.next_##N); \
        transition taken_##N; \
    }
#define TAKEN_(N) taken_##N
#define TAKEN(N) TAKEN_(N)
#define LABEL_TABLE(N, BEFORE) label_position() label_##N;
#define LOOK_UP_LABEL(N, BEFORE) label_##N.apply(hdr.stack, hdr.next_##N, hdr.kept_##N, meta);
#define TAKE_NEXT_OFF(N, BEFORE) hdr.next_##N.setInvalid();
#define TAKE_KEPT_OFF(N, BEFORE) hdr.kept_##N.setInvalid();
#define EMIT_NEXT(N, BEFORE) packet.emit(hdr.next_##N);
#define EMIT_KEPT(N, BEFORE) packet.emit(hdr.kept_##N);
