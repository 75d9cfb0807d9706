/* SPDX-License-Identifier: Apache-2.0 */
/* test_s3_chunks.c: bodies in chunks, in one piece and byte by byte. */
#include "lib/cm.h"

#include "gateway/s3/wire/chunks_priv.h"

#include <stdio.h>
#include <string.h>

#define SIGNATURE "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* What comes of @text, @portion bytes at a time: data as it is, the rest in brackets. */
static void decode_of(const char *text, size_t portion, bool is_aws, char out[1024])
{
    struct s3_chunks chunks = {.is_aws = is_aws};
    size_t bytes = strlen(text), at = 0;
    bool over = false;

    out[0] = 0;
    while (at < bytes && !over) {
        struct pst_bytes input = {text + at, pst_min(portion, bytes - at)}, piece;
        char *end = out + strlen(out);
        size_t room = 1024 - strlen(out), had = input.len;

        switch (s3_chunk_next(&chunks, &input, &piece)) {
        case S3_CHUNK_MORE:
            assert_int_equal(input.len, 0);
            break;
        case S3_CHUNK_PIECE:
            snprintf(end, room, "%.*s", (int)piece.len, (const char *)piece.data);
            break;
        case S3_CHUNK_DONE:
            snprintf(end, room, "[%.4s]", chunks.signature_bytes ? chunks.signature : "");
            break;
        case S3_CHUNK_TRAILER:
            snprintf(end, room, "<%.*s>", (int)s3_chunk_line(&chunks).len, chunks.line);
            break;
        case S3_CHUNK_END:
            snprintf(end, room, ".%s", at + had - input.len < bytes ? "more" : "");
            over = true;
            break;
        case S3_CHUNK_BROKEN:
            snprintf(end, room, "!");
            over = true;
            break;
        }
        at += had - input.len;
    }
}

static void decode(const char *text, size_t portion, char out[1024])
{
    decode_of(text, portion, false, out);
}

static void decodes(const char *text, const char *wanted)
{
    char out[1024];

    for (size_t portion = 1; portion <= strlen(text); portion++) {
        decode(text, portion, out);
        assert_string_equal(out, wanted);
    }
}

static void sound_bodies(void **state)
{
    (void)state;
    decodes("5\r\nhello\r\n0\r\n\r\n", "hello[][].");
    decodes("0\r\n\r\n", "[].");
    decodes("a\r\n0123456789\r\n00001\r\nx\r\n0\r\n\r\n", "0123456789[]x[][].");
    decodes("A;x=y\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n\r\n\r\n\r\n[][].");
    decodes("2;chunk-signature=" SIGNATURE "\r\nhi\r\n0;chunk-signature=" SIGNATURE "\r\n\r\n",
            "hi[0123][0123].");
    decodes("1\r\nx\r\n0\r\na:b\r\nc: d\r\n\r\n", "x[][]<a:b><c: d>.");
    decodes("0\r\n\r\nGET", "[].more");
}

/* As minio-go sends it: a line is signed with its LF, and sent with it, too. */
static void trailers_of_minio(void **state)
{
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"0\r\na:b\n\r\nc:d\r\n\r\n", "[]<a:b><c:d>."},
        {"0\r\na:b\n\r\n\r\n", "[]<a:b>."},
        {"0\r\na:b\nc:d\r\n\r\n", "[]!"},
        {"0\r\na:b\n\n\r\n\r\n", "[]!"},
        {"0\r\n\n\r\n", "[]!"},
        {"0\n\r\n\r\n", "!"},
    };
    char out[1024];

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++)
        for (size_t portion = 1; portion <= strlen(cases[i].text); portion++) {
            decode_of(cases[i].text, portion, true, out);
            assert_string_equal(out, cases[i].wanted);
        }
    decodes(cases[0].text, "[]!"); /* HTTP's own have none */
}

static void broken_bodies(void **state)
{
    char text[S3_CHUNK_LINE_BYTES_MAX + 64], out[1024];

    (void)state;
    decodes("\r\n", "!");
    decodes("g\r\n", "!");
    decodes("5 \r\n", "!");
    decodes("-5\r\n", "!");
    decodes("5\nhello", "!");
    decodes("5\r\rhello", "!");
    decodes("1\r\nxy\r\n", "x!");
    decodes("1\r\nx\n0\r\n\r\n", "x!");
    decodes("1000000000000000\r\n", "!"); /* 16 digits */
    snprintf(text, sizeof(text), "0;%*s\r\n\r\n", S3_CHUNK_LINE_BYTES_MAX, "x");
    decode(text, 7, out);
    assert_string_equal(out, "!");
}

static void too_many_trailers(void **state)
{
    char text[512] = "0\r\n", out[1024];

    (void)state;
    for (int i = 0; i <= S3_TRAILERS_MAX; i++)
        strcat(text, "a:b\r\n");
    decode(text, 64, out);
    assert_int_equal(out[strlen(out) - 1], '!');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_bodies),
        cmocka_unit_test(trailers_of_minio),
        cmocka_unit_test(broken_bodies),
        cmocka_unit_test(too_many_trailers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
