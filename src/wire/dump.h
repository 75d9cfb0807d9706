/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump.h: a store's values as one stream, as docs/reference/dump-format.md draws it. Pure: a writer makes the
 * elements one by one in memory that the caller gives; a reader takes bytes in whatever portions they come
 * and tells what they say. It believes nothing before a checksum has covered it, and never looks behind its
 * input.
 */
#ifndef PST_DUMP_H
#define PST_DUMP_H

#include "base/base.h"

enum {
    PST_DUMP_VERSION = 1,
    PST_DUMP_KEY_BYTES_MAX = 4096,
    PST_DUMP_ATTR_BYTES_MAX = 256,
    PST_DUMP_PIECE_BYTES_MAX = 4 << 20, /* of a value, in one element */
    PST_DUMP_NAMES_BYTES_MAX = 20 + PST_DUMP_KEY_BYTES_MAX + PST_DUMP_ATTR_BYTES_MAX, /* a RECORD element */
    PST_DUMP_SMALL_BYTES_MAX = 28, /* every other element, without the bytes of a piece */
};

/* What a record says of its value. */
struct pst_dump_record {
    struct pst_bytes key;
    struct pst_bytes attrs;
    uint64_t value_bytes;
    uint16_t depth;
};

/* ---- writing ---- */

struct pst_dump_writer {
    uint64_t offset; /* bytes of the stream so far */
    uint64_t records;
    uint32_t stream_crc;
    uint32_t record_crc;
};

/* Each fills @to and returns its length; the bytes of a piece follow its element, unchanged. */
size_t pst_dump_put_head(struct pst_dump_writer *w, uint8_t to[PST_DUMP_SMALL_BYTES_MAX]);
size_t pst_dump_put_record(struct pst_dump_writer *w, const struct pst_dump_record *record,
                           uint8_t to[PST_DUMP_NAMES_BYTES_MAX]);
size_t pst_dump_put_piece(struct pst_dump_writer *w, struct pst_bytes piece,
                          uint8_t to[PST_DUMP_SMALL_BYTES_MAX]);
/* The value is whole; or, with @whole false, it changed under way and the record does not count. */
size_t pst_dump_put_done(struct pst_dump_writer *w, bool whole, uint8_t to[PST_DUMP_SMALL_BYTES_MAX]);
size_t pst_dump_put_end(struct pst_dump_writer *w, uint8_t to[PST_DUMP_SMALL_BYTES_MAX]);

/* ---- reading ---- */

enum pst_dump_event {
    PST_DUMP_MORE,   /* the input is used up */
    PST_DUMP_RECORD, /* a record begins: reader->record; its pieces follow */
    PST_DUMP_PIECE,  /* the next bytes of its value, inside of the input */
    PST_DUMP_DONE,   /* the record is whole */
    PST_DUMP_VOID,   /* the record does not count */
    PST_DUMP_END,    /* the stream is whole */
};

enum pst_dump_state {
    PST_DUMP_AT_HEAD,
    PST_DUMP_AT_RECORD, /* a record or the end comes */
    PST_DUMP_IN_RECORD, /* a piece or the record's end comes */
    PST_DUMP_IN_PIECE,
    PST_DUMP_AT_END,
};

/* Zero-initialise. The record's key and attributes stay valid until the next record begins. */
struct pst_dump_reader {
    struct pst_dump_record record;
    uint64_t offset;  /* bytes of the stream taken */
    uint64_t records; /* begun */
    uint64_t whole;   /* of them, not void */
    uint64_t value_left;
    uint32_t piece_left;
    uint32_t stream_crc, record_crc;
    uint32_t version; /* of the stream, once its head has come */
    enum pst_dump_state state;
    const char *fault; /* what was wrong; static */
    uint32_t have;     /* bytes of the element at hand */
    uint8_t element[PST_DUMP_SMALL_BYTES_MAX];
    uint8_t names[PST_DUMP_NAMES_BYTES_MAX];
};

/*
 * Takes bytes from @input, which moves on, up to the next event. Return: the event (PST_DUMP_PIECE: *@piece
 * is filled), -EBADMSG the stream is damaged, -EPROTONOSUPPORT it has a version above PST_DUMP_VERSION. After
 * an error the reader is of no more use.
 */
int pst_dump_next(struct pst_dump_reader *r, struct pst_bytes *input, struct pst_bytes *piece);
/* There is no more input. Return: 0 or -EBADMSG when the stream is cut off. */
int pst_dump_finish(struct pst_dump_reader *r);
/* The record whose value is underway, or NULL. */
const struct pst_dump_record *pst_dump_underway(const struct pst_dump_reader *r);

#endif
