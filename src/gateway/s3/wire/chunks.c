/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.c: a decoder that takes its input in whichever pieces it comes. */
#include "gateway/s3/wire/chunks_priv.h"

#include "base/hex.h"

enum { LENGTH_DIGITS_MAX = 15 };

enum step {
    CHUNK_LENGTH, /* its line comes */
    CHUNK_DATA,
    CHUNK_DATA_END, /* and the line's end behind it */
    CHUNK_TRAILER_LINE,
    CHUNK_OVER,
    CHUNK_WRONG,
};

static enum s3_chunk_event chunk_broken(struct s3_chunks *c)
{
    c->step = CHUNK_WRONG;
    return S3_CHUNK_BROKEN;
}

/* Whether a byte may be the line's next: a CR and a LF are its end together. A line of S3's trailer may bring
 * a LF of its own in front of it, as it is signed with one. */
static bool chunk_line_goes_on(const struct s3_chunks *c, char byte)
{
    char last = c->line_bytes ? c->line[c->line_bytes - 1] : 0;

    pst_assert(c->line_bytes <= sizeof(c->line));
    if (last == '\r' || c->line_bytes == sizeof(c->line))
        return last == '\r' && byte == '\n';
    if (last == '\n')
        return byte == '\r';
    return byte != '\n' || (c->is_aws && c->step == CHUNK_TRAILER_LINE && c->line_bytes > 0);
}

/* Takes bytes up to a line's end. Return: 1 it is whole, without its end, 0 not yet, -EINVAL too long, or a
 * CR or LF alone. */
static int chunk_line(struct s3_chunks *c, struct pst_bytes *input)
{
    const char *at = input->data;
    size_t n = 0;
    int r = 0;

    pst_assert(c->line_bytes <= sizeof(c->line));
    while (n < input->len && r == 0) {
        char byte = at[n++];

        if (!chunk_line_goes_on(c, byte))
            r = -EINVAL;
        else if (c->line_bytes > 0 && c->line[c->line_bytes - 1] == '\r')
            r = 1;
        else
            c->line[c->line_bytes++] = byte;
    }
    pst_assert(n <= input->len);
    pst_assert(r != 1 || c->line_bytes > 0);
    *input = (struct pst_bytes){at + n, input->len - n};
    c->line_bytes -= r == 1 ? 1 : 0;
    if (r == 1 && c->line_bytes > 0 && c->line[c->line_bytes - 1] == '\n')
        c->line_bytes--;
    return r;
}

static bool chunk_read_length(struct s3_chunks *c)
{
    static const char name[] = ";chunk-signature=";
    size_t at = 0, name_bytes = sizeof(name) - 1;

    pst_assert(c->line_bytes <= sizeof(c->line));
    c->left = 0;
    c->signature_bytes = 0;
    while (at < c->line_bytes && pst_hex_digit_any_case(c->line[at]) >= 0)
        c->left = c->left << 4 | (uint64_t)pst_hex_digit_any_case(c->line[at++]);
    if (at == 0 || at > LENGTH_DIGITS_MAX)
        return false;
    if (c->line_bytes - at == name_bytes + sizeof(c->signature) &&
        memcmp(c->line + at, name, name_bytes) == 0) {
        memcpy(c->signature, c->line + at + name_bytes, sizeof(c->signature));
        c->signature_bytes = sizeof(c->signature);
    } else if (at < c->line_bytes && c->line[at] != ';') {
        return false;
    }
    return true;
}

static enum s3_chunk_event chunk_begin(struct s3_chunks *c)
{
    pst_assert(c->step == CHUNK_LENGTH);
    if (!chunk_read_length(c))
        return chunk_broken(c);
    pst_assert(c->left >> 60 == 0);
    c->line_bytes = 0;
    c->step = c->left ? CHUNK_DATA : CHUNK_TRAILER_LINE;
    return c->left ? S3_CHUNK_MORE : S3_CHUNK_DONE;
}

static enum s3_chunk_event chunk_data(struct s3_chunks *c, struct pst_bytes *input, struct pst_bytes *piece)
{
    size_t n = pst_min(c->left, input->len);

    pst_assert(n > 0);
    pst_assert(c->step == CHUNK_DATA);
    *piece = (struct pst_bytes){input->data, n};
    *input = (struct pst_bytes){(const char *)input->data + n, input->len - n};
    c->left -= n;
    if (c->left == 0)
        c->step = CHUNK_DATA_END;
    return S3_CHUNK_PIECE;
}

static enum s3_chunk_event chunk_trailer(struct s3_chunks *c)
{
    pst_assert(c->trailer_count <= S3_TRAILERS_MAX);
    if (c->line_bytes == 0) {
        c->step = CHUNK_OVER;
        return S3_CHUNK_END;
    }
    return ++c->trailer_count > S3_TRAILERS_MAX ? chunk_broken(c) : S3_CHUNK_TRAILER;
}

/* A line is whole. */
static enum s3_chunk_event chunk_line_came(struct s3_chunks *c)
{
    switch (c->step) {
    case CHUNK_LENGTH:
        return chunk_begin(c);
    case CHUNK_DATA_END:
        if (c->line_bytes)
            return chunk_broken(c);
        c->step = CHUNK_LENGTH;
        return S3_CHUNK_DONE;
    default:
        pst_assert(c->step == CHUNK_TRAILER_LINE);
        return chunk_trailer(c);
    }
}

enum s3_chunk_event s3_chunk_next(struct s3_chunks *c, struct pst_bytes *input, struct pst_bytes *piece)
{
    enum s3_chunk_event event = S3_CHUNK_MORE;

    pst_assert(c->line_bytes <= sizeof(c->line));
    if (c->step == CHUNK_WRONG || c->step == CHUNK_OVER)
        return c->step == CHUNK_WRONG ? S3_CHUNK_BROKEN : S3_CHUNK_END;
    while (event == S3_CHUNK_MORE && input->len > 0) {
        int r;

        if (c->step == CHUNK_DATA)
            return chunk_data(c, input, piece);
        if (c->line_was_told)
            c->line_bytes = 0;
        c->line_was_told = false;
        r = chunk_line(c, input);
        if (r < 0)
            return chunk_broken(c);
        if (r > 0)
            event = chunk_line_came(c);
        c->line_was_told = event == S3_CHUNK_TRAILER;
    }
    return event;
}
