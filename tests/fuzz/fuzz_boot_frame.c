/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_boot_frame.c: frames of the bootstrap socket. What decodes is written as it was read. */
#include "fuzz.h"

#include "net/handshake/handshake_priv.h"

static void same(const struct boot_frame *frame, const uint8_t *again, size_t bytes)
{
    pst_assert(bytes == frame->bytes && memcmp(again, frame->body, bytes) == 0);
}

static void hello(const struct boot_frame *frame)
{
    uint8_t again[BOOT_HELLO_BYTES];
    struct boot_hello hello;

    if (boot_hello_decode(frame, &hello) < 0)
        return;
    boot_hello_encode(&hello, again);
    same(frame, again, sizeof(again));
}

static void challenge(const struct boot_frame *frame)
{
    uint8_t again[BOOT_CHALLENGE_BYTES];
    struct boot_challenge challenge;

    if (boot_challenge_decode(frame, &challenge) < 0)
        return;
    boot_challenge_encode(&challenge, again);
    same(frame, again, sizeof(again));
}

static void welcome(const struct boot_frame *frame)
{
    struct pst_boot_welcome *welcome = calloc(1, sizeof(*welcome));
    uint8_t *again;
    size_t bytes;

    pst_assert(welcome);
    if (boot_welcome_decode(frame->body, frame->bytes, welcome) == 0) {
        bytes = boot_welcome_bytes(welcome);
        again = malloc(bytes);
        pst_assert(again);
        boot_welcome_encode(welcome, again, bytes);
        same(frame, again, bytes);
        free(again);
    }
    free(welcome);
}

static void refused(const struct boot_frame *frame)
{
    const char *fault = NULL;
    int r = boot_refused_decode(frame, &fault);

    pst_assert(r < 0 && fault && *fault);
}

/* The first byte chooses how the rest is bounded, as the server's and the client's buffers do. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    size_t max = fuzz_number(&in, 1) & 1 ? BOOT_FRAME_SMALL_MAX : BOOT_FRAME_WELCOME_MAX, len;
    uint8_t *copy = fuzz_take(&in, in.left, &len);
    struct boot_frame frame;
    int n = boot_frame_parse(copy, len, max, &frame);

    if (n > 0) {
        pst_assert((size_t)n <= len && (size_t)n <= max && frame.bytes == (uint32_t)n - BOOT_HEAD_BYTES);
        pst_assert(frame.body + frame.bytes <= copy + len);
        if (frame.type == BOOT_HELLO)
            hello(&frame);
        if (frame.type == BOOT_CHALLENGE)
            challenge(&frame);
        if (frame.type == BOOT_WELCOME)
            welcome(&frame);
        if (frame.type == BOOT_REFUSED)
            refused(&frame);
    }
    free(copy);
    return 0;
}
