/* SPDX-License-Identifier: Apache-2.0 */
/* dump.c: the elements of a dump, made and taken apart. Source: docs/reference/dump-format.md. */
#include "wire/dump.h"

#include "base/hash.h"

static const uint8_t magic[8] = {'P', 'S', 'T', 'D', 'U', 'M', 'P', '\n'};

enum kind { KIND_RECORD = 1, KIND_PIECE = 2, KIND_DONE = 3, KIND_VOID = 4, KIND_END = 5 };

struct head {
    uint8_t magic[8];
    uint32_t version;
    uint32_t crc;
};
_Static_assert(sizeof(struct head) == 16, "dump head");

/* Then key, attributes and a u32 crc. */
struct names {
    uint8_t kind;
    uint8_t spare;
    uint16_t key_bytes;
    uint16_t attr_bytes;
    uint16_t depth;
    uint64_t value_bytes;
};
_Static_assert(sizeof(struct names) == 16, "dump record");
_Static_assert(sizeof(struct names) + PST_DUMP_KEY_BYTES_MAX + PST_DUMP_ATTR_BYTES_MAX + 4 ==
                   PST_DUMP_NAMES_BYTES_MAX,
               "dump record with names");

/* A piece, whose bytes follow; the end of a record, whole or void. */
struct small {
    uint8_t kind;
    uint8_t spare[3];
    uint32_t word; /* piece: bytes; done, void: crc */
};
_Static_assert(sizeof(struct small) == 8, "dump piece");

/* 28 bytes in the stream. */
struct end {
    uint8_t kind;
    uint8_t spare[7];
    uint64_t records;
    uint64_t bytes;
    uint32_t crc;
    uint32_t not_written;
};
enum { END_BYTES = offsetof(struct end, not_written) };
_Static_assert(offsetof(struct end, not_written) == PST_DUMP_SMALL_BYTES_MAX, "dump end");

/* ---- writing ---- */

static void dump_count(struct pst_dump_writer *w, const void *data, size_t len)
{
    w->stream_crc = pst_crc32c(w->stream_crc, data, len);
    w->record_crc = pst_crc32c(w->record_crc, data, len);
    w->offset += len;
}

size_t pst_dump_put_head(struct pst_dump_writer *w, uint8_t to[PST_DUMP_SMALL_BYTES_MAX])
{
    struct head head = {.version = PST_DUMP_VERSION};

    pst_assert(w->offset == 0);
    pst_assert(w->records == 0);
    memcpy(head.magic, magic, sizeof(magic));
    head.crc = pst_crc32c(0, &head, offsetof(struct head, crc));
    memcpy(to, &head, sizeof(head));
    dump_count(w, to, sizeof(head));
    return sizeof(head);
}

size_t pst_dump_put_record(struct pst_dump_writer *w, const struct pst_dump_record *record,
                           uint8_t to[PST_DUMP_NAMES_BYTES_MAX])
{
    struct names names = {.kind = KIND_RECORD,
                          .key_bytes = (uint16_t)record->key.len,
                          .attr_bytes = (uint16_t)record->attrs.len,
                          .depth = record->depth,
                          .value_bytes = record->value_bytes};
    size_t len = sizeof(names) + record->key.len + record->attrs.len;
    uint32_t crc;

    pst_assert(w->offset >= sizeof(struct head));
    pst_assert(record->key.len >= 1 && record->key.len <= PST_DUMP_KEY_BYTES_MAX);
    pst_assert(record->attrs.len <= PST_DUMP_ATTR_BYTES_MAX);
    memcpy(to, &names, sizeof(names));
    memcpy(to + sizeof(names), record->key.data, record->key.len);
    if (record->attrs.len)
        memcpy(to + sizeof(names) + record->key.len, record->attrs.data, record->attrs.len);
    crc = pst_crc32c(0, to, len);
    memcpy(to + len, &crc, sizeof(crc));
    w->record_crc = 0;
    w->records++;
    dump_count(w, to, len + sizeof(crc));
    return len + sizeof(crc);
}

size_t pst_dump_put_piece(struct pst_dump_writer *w, struct pst_bytes piece,
                          uint8_t to[PST_DUMP_SMALL_BYTES_MAX])
{
    struct small small = {.kind = KIND_PIECE, .word = (uint32_t)piece.len};

    pst_assert(w->records > 0);
    pst_assert(piece.len >= 1 && piece.len <= PST_DUMP_PIECE_BYTES_MAX);
    memcpy(to, &small, sizeof(small));
    dump_count(w, to, sizeof(small));
    dump_count(w, piece.data, piece.len);
    return sizeof(small);
}

size_t pst_dump_put_done(struct pst_dump_writer *w, bool whole, uint8_t to[PST_DUMP_SMALL_BYTES_MAX])
{
    struct small small = {.kind = whole ? KIND_DONE : KIND_VOID};

    pst_assert(w->records > 0);
    small.word = pst_crc32c(w->record_crc, &small, offsetof(struct small, word));
    memcpy(to, &small, sizeof(small));
    dump_count(w, to, sizeof(small));
    w->records -= !whole;
    return sizeof(small);
}

size_t pst_dump_put_end(struct pst_dump_writer *w, uint8_t to[PST_DUMP_SMALL_BYTES_MAX])
{
    struct end end = {.kind = KIND_END, .records = w->records, .bytes = w->offset};

    pst_assert(w->offset >= sizeof(struct head));
    end.crc = pst_crc32c(w->stream_crc, &end, offsetof(struct end, crc));
    memcpy(to, &end, END_BYTES);
    dump_count(w, to, END_BYTES);
    return END_BYTES;
}

/* ---- reading ---- */

static int dump_damaged(struct pst_dump_reader *r, const char *fault)
{
    pst_assert(fault && *fault);
    r->fault = fault;
    return -EBADMSG;
}

/* Moves bytes from the input to @to until there are @want of them. Return: false when the input is used up.
 */
static bool dump_gather(struct pst_dump_reader *r, uint8_t *to, size_t want, struct pst_bytes *input)
{
    size_t len = pst_min(want - r->have, input->len);

    pst_assert(r->have <= want && want <= PST_DUMP_NAMES_BYTES_MAX);
    if (len) {
        memcpy(to + r->have, input->data, len);
        *input = (struct pst_bytes){(const uint8_t *)input->data + len, input->len - len};
        r->have += (uint32_t)len;
        r->offset += len;
    }
    return r->have == want;
}

static void dump_cover(struct pst_dump_reader *r, const void *data, size_t len)
{
    r->stream_crc = pst_crc32c(r->stream_crc, data, len);
    r->record_crc = pst_crc32c(r->record_crc, data, len);
}

static int dump_take_head(struct pst_dump_reader *r)
{
    struct head head;

    pst_assert(r->state == PST_DUMP_AT_HEAD);
    pst_assert(r->have == 0);
    pst_assert(r->offset == sizeof(head));
    memcpy(&head, r->element, sizeof(head));
    if (memcmp(head.magic, magic, sizeof(magic)) != 0)
        return dump_damaged(r, "this is no dump of penstock");
    if (head.crc != pst_crc32c(0, &head, offsetof(struct head, crc)))
        return dump_damaged(r, "the head's checksum is wrong");
    r->version = head.version;
    if (head.version != PST_DUMP_VERSION) {
        r->fault = "the dump has a version that this program does not read";
        return -EPROTONOSUPPORT;
    }
    dump_cover(r, &head, sizeof(head));
    r->state = PST_DUMP_AT_RECORD;
    return 0;
}

/* The whole element is in r->names. */
static int dump_take_record(struct pst_dump_reader *r, const struct names *names)
{
    size_t len = sizeof(*names) + names->key_bytes + names->attr_bytes;
    uint32_t crc;

    pst_assert(r->state == PST_DUMP_AT_RECORD);
    pst_assert(r->have == 0);
    pst_assert(len + sizeof(crc) <= sizeof(r->names));
    memcpy(&crc, r->names + len, sizeof(crc));
    if (crc != pst_crc32c(0, r->names, len))
        return dump_damaged(r, "the checksum of a record's head is wrong");
    r->record_crc = 0;
    dump_cover(r, r->names, len + sizeof(crc));
    r->record = (struct pst_dump_record){
        .key = {r->names + sizeof(*names), names->key_bytes},
        .attrs = {r->names + sizeof(*names) + names->key_bytes, names->attr_bytes},
        .value_bytes = names->value_bytes,
        .depth = names->depth,
    };
    r->value_left = names->value_bytes;
    r->records++;
    r->state = PST_DUMP_IN_RECORD;
    return PST_DUMP_RECORD;
}

static int read_record(struct pst_dump_reader *r, struct pst_bytes *input)
{
    struct names names;

    pst_assert(r->state == PST_DUMP_AT_RECORD);
    pst_assert(r->have > 0);
    if (r->have < sizeof(names) && !dump_gather(r, r->names, sizeof(names), input))
        return PST_DUMP_MORE;
    memcpy(&names, r->names, sizeof(names));
    if (names.key_bytes < 1 || names.key_bytes > PST_DUMP_KEY_BYTES_MAX ||
        names.attr_bytes > PST_DUMP_ATTR_BYTES_MAX)
        return dump_damaged(r, "a record's key or attributes have an impossible length");
    if (!dump_gather(r, r->names, sizeof(names) + names.key_bytes + names.attr_bytes + 4, input))
        return PST_DUMP_MORE;
    r->have = 0;
    return dump_take_record(r, &names);
}

static int read_end(struct pst_dump_reader *r, struct pst_bytes *input)
{
    struct end end = {0};

    if (!dump_gather(r, r->names, END_BYTES, input))
        return PST_DUMP_MORE;
    memcpy(&end, r->names, END_BYTES);
    if (end.crc != pst_crc32c(r->stream_crc, &end, offsetof(struct end, crc)))
        return dump_damaged(r, "the stream's checksum is wrong");
    if (end.records != r->whole || end.bytes != r->offset - END_BYTES)
        return dump_damaged(r, "the end counts other records or bytes than came");
    r->have = 0;
    pst_assert(r->state == PST_DUMP_AT_RECORD);
    pst_assert(r->piece_left == 0);
    r->state = PST_DUMP_AT_END;
    return PST_DUMP_END;
}

/* Between records: the first byte says which element comes. */
static int read_between(struct pst_dump_reader *r, struct pst_bytes *input)
{
    pst_assert(r->value_left == 0 || r->records > r->whole);
    if (r->have == 0 && !dump_gather(r, r->names, 1, input))
        return PST_DUMP_MORE;
    if (r->names[0] == KIND_RECORD)
        return read_record(r, input);
    if (r->names[0] == KIND_END)
        return read_end(r, input);
    return dump_damaged(r, "neither a record nor the end where one must be");
}

static int dump_take_small(struct pst_dump_reader *r, const struct small *small)
{
    uint32_t crc = pst_crc32c(r->record_crc, small, offsetof(struct small, word));

    pst_assert(r->state == PST_DUMP_IN_RECORD);
    pst_assert(r->piece_left == 0);
    if (small->kind == KIND_PIECE) {
        if (small->word < 1 || small->word > PST_DUMP_PIECE_BYTES_MAX || small->word > r->value_left)
            return dump_damaged(r, "a piece of a value has an impossible length");
        r->piece_left = small->word;
        r->value_left -= small->word;
        r->state = PST_DUMP_IN_PIECE;
        dump_cover(r, small, sizeof(*small));
        return 0;
    }
    if (small->kind != KIND_DONE && small->kind != KIND_VOID)
        return dump_damaged(r, "neither a piece nor the end of a record where one must be");
    if (small->word != crc)
        return dump_damaged(r, "the record's checksum is wrong");
    if (small->kind == KIND_DONE && r->value_left)
        return dump_damaged(r, "the record ends before its value does");
    dump_cover(r, small, sizeof(*small));
    r->whole += small->kind == KIND_DONE;
    r->state = PST_DUMP_AT_RECORD;
    pst_assert(r->whole <= r->records);
    return small->kind == KIND_DONE ? PST_DUMP_DONE : PST_DUMP_VOID;
}

static int read_piece(struct pst_dump_reader *r, struct pst_bytes *input, struct pst_bytes *piece)
{
    size_t len = pst_min(r->piece_left, input->len);

    pst_assert(r->piece_left > 0);
    if (!len)
        return PST_DUMP_MORE;
    *piece = (struct pst_bytes){input->data, len};
    *input = (struct pst_bytes){(const uint8_t *)input->data + len, input->len - len};
    dump_cover(r, piece->data, len);
    r->offset += len;
    r->piece_left -= (uint32_t)len;
    if (!r->piece_left)
        r->state = PST_DUMP_IN_RECORD;
    return PST_DUMP_PIECE;
}

/* One element. Return: 0 when it tells the caller nothing, an event, or an error. */
static int dump_step(struct pst_dump_reader *r, struct pst_bytes *input, struct pst_bytes *piece)
{
    struct small small;

    pst_assert(r->whole <= r->records);
    pst_assert(r->state <= PST_DUMP_AT_END);
    switch (r->state) {
    case PST_DUMP_AT_HEAD:
        if (!dump_gather(r, r->element, sizeof(struct head), input))
            return PST_DUMP_MORE;
        r->have = 0;
        return dump_take_head(r);
    case PST_DUMP_AT_RECORD:
        return read_between(r, input);
    case PST_DUMP_IN_RECORD:
        if (!dump_gather(r, r->element, sizeof(small), input))
            return PST_DUMP_MORE;
        r->have = 0;
        memcpy(&small, r->element, sizeof(small));
        return dump_take_small(r, &small);
    case PST_DUMP_IN_PIECE:
        return read_piece(r, input, piece);
    case PST_DUMP_AT_END:
        break;
    }
    return input->len ? dump_damaged(r, "something follows the end") : PST_DUMP_MORE;
}

int pst_dump_next(struct pst_dump_reader *r, struct pst_bytes *input, struct pst_bytes *piece)
{
    int event;

    do
        event = dump_step(r, input, piece);
    while (event == PST_DUMP_MORE && input->len);
    pst_assert(event <= 0 || event != PST_DUMP_PIECE || piece->len > 0);
    return event;
}

int pst_dump_finish(struct pst_dump_reader *r)
{
    return r->state == PST_DUMP_AT_END ? 0 : dump_damaged(r, "the stream ends too early");
}

const struct pst_dump_record *pst_dump_underway(const struct pst_dump_reader *r)
{
    return r->state == PST_DUMP_IN_RECORD || r->state == PST_DUMP_IN_PIECE ? &r->record : NULL;
}
