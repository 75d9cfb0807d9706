/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_priv.h: objects on their way out of the store and into it. Included by s3_priv.h. What is here
 * belongs to the thread of its session.
 */
#ifndef PST_S3_STORE_PRIV_H
#define PST_S3_STORE_PRIV_H

#include "gateway/s3/wire/attrs_priv.h"
#include "gateway/s3/wire/conditions_priv.h"

#include <penstock/penstock.h>

struct s3_session;
struct s3_check;

/* A value as it was when it was asked for. */
struct s3_object {
    uint64_t bytes, generation;
    struct s3_attrs attrs;
};

/* ---- store.c: what is read from the store ---- */

/* A result of the store's, with its reason noted. */
enum s3_code s3_result(struct s3_session *s, const struct penstock_op *op);
enum s3_code s3_result_of(struct s3_session *s, int result);
enum s3_code s3_stat(struct s3_session *s, struct pst_bytes key, struct s3_object *out);
/* Deletes the value if it is still of that generation. Return: the operation's result. */
int s3_delete_generation(struct s3_session *s, struct pst_bytes key, uint64_t generation);

/* An object's bytes, of one generation alone: in place, or by copies where that cannot be. */
struct s3_source {
    struct pst_bytes key;
    uint64_t bytes, generation;
    bool viewed;
    struct penstock_view view;
    uint8_t *buf;
    size_t room;
};

/* S3_CHANGED: it is not @object any more. */
enum s3_code s3_source_open(struct s3_session *s, struct pst_bytes key, const struct s3_object *object,
                            struct s3_source *out);
/* Bytes from @offset on, @bytes at the most; valid until the next call. */
enum s3_code s3_source_piece(struct s3_session *s, struct s3_source *source, uint64_t offset, uint64_t bytes,
                             struct pst_bytes *piece);
void s3_source_close(struct s3_session *s, struct s3_source *source);

/* ---- sink.c: what is written to it ---- */

/* A value that is being written; visible with its commit, whole. */
struct s3_sink {
    struct pst_bytes key;
    const struct s3_attrs *attrs;
    bool conditional; /* the key has if_generation, 0: is absent */
    uint64_t if_generation;
    uint64_t ttl_ms; /* 0: it stays */
    bool open;
    struct penstock_reservation reservation;
    uint64_t bytes;          /* written */
    struct s3_check *checks; /* of all that is written */
    uint32_t check_count;
};

enum s3_code s3_sink_put(struct s3_session *s, struct s3_sink *sink, const void *data, uint64_t bytes,
                         uint64_t *generation);
/* @bytes: S3_BYTES_UNKNOWN: it grows. */
enum s3_code s3_sink_open(struct s3_session *s, struct s3_sink *sink, uint64_t bytes);
enum s3_code s3_sink_write(struct s3_session *s, struct s3_sink *sink, const void *data, uint64_t bytes);
enum s3_code s3_sink_commit(struct s3_session *s, struct s3_sink *sink, uint64_t *generation);
/* Gives up what was not committed. */
void s3_sink_close(struct s3_session *s, struct s3_sink *sink);
/* The request's body becomes the value. */
enum s3_code s3_sink_body(struct s3_session *s, struct s3_sink *sink, uint64_t *generation);
/* A range of another value goes on where the sink, which is open, is. */
enum s3_code s3_sink_source(struct s3_session *s, struct s3_sink *sink, struct s3_source *source,
                            struct s3_range range);
/* A range of another value becomes the value. */
enum s3_code s3_sink_range(struct s3_session *s, struct s3_sink *sink, struct s3_source *source,
                           struct s3_range range, uint64_t *generation);

#endif
