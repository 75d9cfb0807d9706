/* SPDX-License-Identifier: Apache-2.0 */
/* reservation_rig.h: a store with a session that reserves, writes and commits. */
#ifndef PST_TEST_RESERVATION_RIG_H
#define PST_TEST_RESERVATION_RIG_H

#include "lib/engine.h"

static const struct engine_shape plain = {.page_bytes = 64 << 10, .pages = 64, .arena_pages = 16};

struct session {
    struct engine e;
    struct pst_holder holder;
    struct pst_quota quota;
};

static inline void session_open(struct session *s, const struct engine_shape *shape)
{
    engine_open(&s->e, shape);
    s->quota = (struct pst_quota){0};
    pst_holder_init(&s->holder, &s->quota);
}

static inline void session_close(struct session *s)
{
    pst_holder_end(s->e.shard, &s->holder);
    assert_int_equal(s->quota.reservations, 0);
    assert_int_equal(s->quota.bytes, 0);
    engine_close(&s->e);
}

static inline struct pst_shard_later later_of(struct session *s)
{
    struct pst_shard_later later;

    pst_shard_stat_later(s->e.shard, &later);
    return later;
}

static inline struct pst_reservation *reserve(struct session *s, const char *key, uint64_t bytes,
                                              bool replace)
{
    struct pst_put put = put_of(s->e.shard, key, bytes);
    struct pst_answer answer;
    struct pst_reservation *reservation = NULL;

    assert_int_equal(
        pst_reservation_reserve(s->e.shard, &s->holder, &put, replace, s->e.now_ns, &reservation, &answer),
        0);
    return reservation;
}

static inline int write_reservation(struct session *s, struct pst_reservation *reservation, uint32_t seed,
                                    uint64_t from, uint64_t to)
{
    struct iovec piece;
    int r = pst_reservation_write(s->e.shard, reservation, from, to - from, s->e.now_ns);

    for (uint64_t at = from; r == 0 && pst_reservation_piece(s->e.shard, reservation, at, to - at, &piece);
         at += piece.iov_len)
        memcpy(piece.iov_base, pattern(seed) + at, piece.iov_len);
    if (r == 0)
        pst_reservation_written(s->e.shard, reservation, from, to - from, true);
    return r;
}

/* As its writer names it; its location is told until the next call. */
static inline struct pst_reservation_named named_of(struct session *s, const char *key,
                                                    struct pst_reservation *reservation, uint64_t bytes)
{
    static char location[PST_RESERVATION_LOCATION_BYTES_MAX + 1];

    return (struct pst_reservation_named){
        .handle = pst_reservation_handle(reservation),
        .key = bytes_of(key),
        .location = {location, pst_reservation_location(s->e.shard, reservation, location)},
        .bytes = bytes,
        .tier = PST_TIER_DRAM};
}

static inline int commit(struct session *s, const char *key, struct pst_reservation *reservation,
                         uint64_t bytes, struct pst_answer *answer)
{
    struct pst_reservation_named named = named_of(s, key, reservation, bytes);

    return pst_reservation_commit(s->e.shard, &s->holder, &named, s->e.now_ns, answer);
}

static inline struct pst_change change_of(struct session *s, enum pst_change_kind kind, const char *key)
{
    return (struct pst_change){.kind = kind, .put = put_of(s->e.shard, key, 0)};
}

static inline struct pst_change put_change(struct session *s, const char *key, uint32_t seed, uint64_t bytes)
{
    struct pst_change c = change_of(s, PST_CHANGE_PUT, key);

    c.put.value_bytes = bytes;
    c.value = pattern(seed);
    return c;
}

static inline bool prepare(struct session *s, struct pst_change *first)
{
    return pst_changes_prepare(s->e.shard, &s->holder, first, false, s->e.now_ns);
}

#endif
