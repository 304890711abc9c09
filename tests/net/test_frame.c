/* The codec of frames: decoding returns what was encoded, every changed bit is detected, and frames that no sender may send are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/frame/frame.h"
#include "fuzz/fuzz.h"
#include "net/frame/stale.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void checksum(void **state)
{
    char bytes[100];

    (void)state;
    assert_int_equal(frame_crc32c(0, "123456789", 9), 0xe3069283); /* RFC 3720, B.4 */
    assert_int_equal(frame_crc32c_table(0, "123456789", 9), 0xe3069283);
    memset(bytes, 0, 32);
    assert_int_equal(frame_crc32c(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(frame_crc32c(0, bytes, 32), 0x62a8ab43);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 37);
    for (size_t from = 0; from < 9; from++)
        for (size_t count = 0; count < 80; count++) {
            uint32_t whole = frame_crc32c(0, bytes + from, count);
            assert_int_equal(whole, frame_crc32c_table(0, bytes + from, count));
            assert_int_equal(whole, frame_crc32c(frame_crc32c(0, bytes + from, count / 3), bytes + from + count / 3, count - count / 3));
        }
}

static const struct frame sample = {.kind = FRAME_EXPOSE,
                                    .edge = 2,
                                    .from = 0x1234,
                                    .channel = 0x89abcdef,
                                    .key = UINT64_C(0x123456789abcdef0),
                                    .tag = 7,
                                    .bytes = 4097,
                                    .number = 99};

static void there_and_back(void **state)
{
    unsigned char head[FRAME_HEAD];
    struct frame got;

    (void)state;
    frame_encode(&sample, head);
    assert_int_equal(head[0], FRAME_EXPOSE);
    assert_int_equal(head[2], 0x34); /* the byte order is the protocol's, not this machine's */
    assert_int_equal(head[8], 0xf0);
    assert_int_equal(frame_decode(head, 99, &got), FRAME_SOUND);
    assert_int_equal(got.kind, sample.kind);
    assert_int_equal(got.edge, sample.edge);
    assert_int_equal(got.from, sample.from);
    assert_int_equal(got.channel, sample.channel);
    assert_true(got.key == sample.key);
    assert_int_equal(got.tag, sample.tag);
    assert_int_equal(got.bytes, sample.bytes);
}

static void every_bit_counts(void **state)
{
    unsigned char head[FRAME_HEAD];
    struct frame got;

    (void)state;
    frame_encode(&sample, head);
    for (int bit = 0; bit < 8 * FRAME_HEAD; bit++) {
        head[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_equal(frame_decode(head, 99, &got), FRAME_BAD_CRC);
        head[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_int_equal(frame_decode(head, 98, &got), FRAME_BAD_NUMBER);
    assert_int_equal(frame_decode(head, 100, &got), FRAME_BAD_NUMBER);
}

static enum frame_fault fault_of(uint8_t kind, uint8_t edge, uint32_t bytes)
{
    struct frame f = {.kind = kind, .edge = edge, .bytes = bytes}, got;
    unsigned char head[FRAME_HEAD];

    frame_encode(&f, head);
    return frame_decode(head, 0, &got);
}

/* The checksum is right, so only the meaning is wrong. */
static void limits(void **state)
{
    (void)state;
    assert_int_equal(fault_of(0, 0, 0), FRAME_BAD_KIND);
    assert_int_equal(fault_of(FRAME_KINDS, 0, 0), FRAME_BAD_KIND);
    assert_int_equal(fault_of(255, 0, 0), FRAME_BAD_KIND);
    assert_int_equal(fault_of(FRAME_EXPOSE, 3, 0), FRAME_SOUND);
    assert_int_equal(fault_of(FRAME_EXPOSE, 4, 0), FRAME_BAD_EDGE);
    assert_int_equal(fault_of(FRAME_EXPOSE, 0, FRAME_PAYLOAD_MAX), FRAME_SOUND);
    assert_int_equal(fault_of(FRAME_EXPOSE, 0, FRAME_PAYLOAD_MAX + 1), FRAME_BAD_LENGTH);
    assert_int_equal(fault_of(FRAME_EXPOSE, 0, UINT32_MAX), FRAME_BAD_LENGTH);
    assert_int_equal(fault_of(FRAME_EXPOSE, 0, UINT32_C(0x80000000)), FRAME_BAD_LENGTH);
    assert_int_equal(fault_of(FRAME_NOTE, 0, 512), FRAME_SOUND);
    assert_int_equal(fault_of(FRAME_NOTE, 0, 513), FRAME_BAD_LENGTH);
    assert_int_equal(fault_of(FRAME_GRANT, 0, 7), FRAME_BAD_LENGTH);
    assert_int_equal(fault_of(FRAME_GRANT, 0, 9), FRAME_BAD_LENGTH);
    assert_int_equal(fault_of(FRAME_DATA, 0, 0), FRAME_BAD_LENGTH);
    assert_int_equal(fault_of(FRAME_EAGER, 0, FRAME_CONTROL_MAX + 1), FRAME_BAD_LENGTH);
    for (uint8_t kind = 1; kind < FRAME_KINDS; kind++) /* control frames are never longer than a lane's stage */
        if (kind != FRAME_EXPOSE && kind != FRAME_DATA)
            assert_int_equal(fault_of(kind, 0, FRAME_CONTROL_MAX + 1), FRAME_BAD_LENGTH);
    for (enum frame_fault fault = FRAME_SOUND; fault <= FRAME_BAD_LENGTH; fault++)
        assert_true(strlen(frame_fault_text(fault)) > 10);
}

/* The same as the fuzzer, from a seed: flipped bits, truncation, numbers at the limits of their ranges, then a correct checksum. */
static void mutations(void **state)
{
    uint64_t seed = 88172645463325252u, sound = 0;
    unsigned char head[FRAME_HEAD];

    (void)state;
    for (uint32_t turn = 0; turn < 200000; turn++) {
        static const uint32_t edges[] = {0, 1, 47, 48, 49, 4095, 4160, 4161, 1 << 20, (1 << 20) + 1, 0x7fffffff, 0x80000000, 0xffffffff};
        struct frame f = sample;
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        f.kind = (uint8_t)(seed % (FRAME_KINDS + 2));
        f.edge = (uint8_t)(seed >> 8 & 7);
        f.bytes = edges[(seed >> 16) % (sizeof edges / sizeof *edges)];
        f.number = (uint32_t)(seed >> 40 & 1);
        frame_encode(&f, head);
        if (seed >> 60 == 0)
            head[seed >> 32 & 31] ^= (unsigned char)(seed >> 24);
        sound += (uint64_t)fuzz_frame(head, sizeof head);
    }
    assert_true(sound > 1000); /* otherwise it tested nothing but checksums */
}

/* ------------------------------------------------------------------------------------------------------------ stale frames */
/* A frame belongs to the channel that it was sent for, not to the one that has its place now. */
static void another_has_its_place(void **state)
{
    const int32_t world[] = {4, 7, 9};
    uint32_t old = stale_name(3, 5), now = stale_name(4, 5);

    (void)state;
    assert_int_equal(stale_place(old), 5);
    assert_int_equal(stale_place(now), 5);
    assert_true(stale_is_for(now, now) && !stale_is_for(old, now));
    assert_true(stale_is_member(1, 3, world, 7) && !stale_is_member(1, 3, world, 4) && !stale_is_member(3, 3, world, 9));
}

/* Acknowledgements may arrive out of order, and numbers wrap. */
static void an_older_word(void **state)
{
    wire_key second = wire_key_of(9, 2, 1), third = wire_key_of(9, 3, 1);

    (void)state;
    assert_int_equal(stale_retired(7, 9), 9);
    assert_int_equal(stale_retired(9, 7), 9);
    assert_int_equal(stale_retired(UINT32_MAX, 2), 2);
    assert_int_equal(stale_retired(2, UINT32_MAX), 2);
    assert_int_equal(stale_ack(second, 8, third), third);
    assert_int_equal(stale_ack(third, 8, second), third);
    assert_int_equal(stale_ack(third, 8, third), third);
    assert_int_equal(stale_ack(0, 9, third), 0); /* that operation is already retired there */
    assert_int_equal(stale_ack(third, 9, wire_key_of(13, 0, 1)), wire_key_of(13, 0, 1));
    assert_true(stale_is_done(9, third) && !stale_is_done(8, third) && stale_is_done(1, wire_key_of(UINT32_MAX, 0, 0)));
}

/* A frame is a whole number of lines, and a long payload begins at a line. */
static void lines(void **state)
{
    (void)state;
    for (uint32_t bytes = 0; bytes < 1000; bytes++) {
        uint32_t at = frame_payload_at(bytes), span = frame_span(bytes);
        assert_int_equal(at, bytes <= 32 ? 32 : 64);
        assert_int_equal(span % 64, 0);
        assert_true(span >= at + bytes && span < at + bytes + 64);
    }
    assert_int_equal(frame_span(FRAME_PAYLOAD_MAX), FRAME_PAYLOAD_MAX + 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksum),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(limits),
        cmocka_unit_test(mutations),
        cmocka_unit_test(lines),
        cmocka_unit_test(another_has_its_place),
        cmocka_unit_test(an_older_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
