// Applies DO(n, n - 1) to each position n = 1 .. LABELS_A_PASS of a pass.
//
// Each position has a separate header, parser state and table, because P4 has no loops, and an element of a
// header stack must be copied before it can be the key of a table.

#define UP_TO_1(DO) DO(1, 0)
#define UP_TO_2(DO) UP_TO_1(DO) DO(2, 1)
#define UP_TO_4(DO) UP_TO_2(DO) DO(3, 2) DO(4, 3)
#define UP_TO_8(DO) UP_TO_4(DO) DO(5, 4) DO(6, 5) DO(7, 6) DO(8, 7)
#define UP_TO_16(DO) UP_TO_8(DO) \
    DO(9, 8) DO(10, 9) DO(11, 10) DO(12, 11) DO(13, 12) DO(14, 13) DO(15, 14) DO(16, 15)
#define UP_TO_32(DO) UP_TO_16(DO) \
    DO(17, 16) DO(18, 17) DO(19, 18) DO(20, 19) DO(21, 20) DO(22, 21) DO(23, 22) DO(24, 23) \
    DO(25, 24) DO(26, 25) DO(27, 26) DO(28, 27) DO(29, 28) DO(30, 29) DO(31, 30) DO(32, 31)
#define UP_TO_64(DO) UP_TO_32(DO) \
    DO(33, 32) DO(34, 33) DO(35, 34) DO(36, 35) DO(37, 36) DO(38, 37) DO(39, 38) DO(40, 39) \
    DO(41, 40) DO(42, 41) DO(43, 42) DO(44, 43) DO(45, 44) DO(46, 45) DO(47, 46) DO(48, 47) \
    DO(49, 48) DO(50, 49) DO(51, 50) DO(52, 51) DO(53, 52) DO(54, 53) DO(55, 54) DO(56, 55) \
    DO(57, 56) DO(58, 57) DO(59, 58) DO(60, 59) DO(61, 60) DO(62, 61) DO(63, 62) DO(64, 63)
#define UP_TO_(N, DO) UP_TO_##N(DO)
#define UP_TO(N, DO) UP_TO_(N, DO)
#define EACH_POSITION(DO) UP_TO(LABELS_A_PASS, DO)

#define LABEL_HEADER(N, BEFORE) label_h label_##N;
#define TAKE_LABEL(N, BEFORE) \
    state taken_##BEFORE { \
        transition select(meta.unexamined) { \
            BEFORE: last_pass; \
            default: take_##N; \
        } \
    } \
    state take_##N { \
        packet.extract(hdr.label_##N); \
        transition taken_##N; \
    }
#define TAKEN_(N) taken_##N
#define TAKEN(N) TAKEN_(N)
#define LABEL_TABLE(N, BEFORE) label_position() label_##N;
#define LOOK_UP_LABEL(N, BEFORE) label_##N.apply(hdr.stack, hdr.label_##N, meta);
#define TAKE_LABEL_OFF(N, BEFORE) hdr.label_##N.setInvalid();
#define EMIT_LABEL(N, BEFORE) packet.emit(hdr.label_##N);
