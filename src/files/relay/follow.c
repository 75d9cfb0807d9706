/* SPDX-License-Identifier: Apache-2.0 */
/* follow.c: pieces from the parent, in their order, each checked before anybody behind can have it. */
#include "files/relay/member_priv.h"

#include "base/clock.h"

#include <stdio.h>

struct following {
    struct relay_member *m;
    const struct relay_place *place;
    struct link *link;
    bool wrong;  /* bytes, or a plan, that are not the source's */
    bool failed; /* here */
    bool all;
};

/* Ends the member's own part: nothing that a parent could do better. */
static int follow_fail(struct following *f, int error, const char *text)
{
    f->failed = true;
    return link_fail(f->link, error, "%s", text);
}

static int send_follow(struct following *f)
{
    struct relay_member *m = f->m;

    link_put_number(f->link, PST_BROADCAST_VERSION, 2);
    link_put(f->link, f->place->key, sizeof(f->place->key));
    link_put_number(f->link, m->feed.have, 4);
    link_put_number(f->link, m->has_plan ? 0 : RELAY_WANTS_PLAN, 1);
    link_put_text(f->link, m->options->group);
    return link_send(f->link, LINK_FOLLOW);
}

/* ---- the plan ---- */

static int begin_sink(struct following *f)
{
    struct relay_member *m = f->m;
    char fault[PST_FAULT_BYTES] = "";
    int r;

    pst_assert(m->has_plan);
    pst_assert(!m->begun);
    m->begun = true;
    m->piece_ms = UINT64_MAX; /* it is this member that takes its time, not its parent */
    r = m->sink->begin(m->sink_ctx, &m->plan.m, fault);
    m->piece_ms = pst_now_ms();
    return r < 0 ? follow_fail(f, r, fault) : 0;
}

/* Digests of a batch: of the next one, or once more of the one that is coming. */
static int take_batch(struct following *f, struct pst_reader *frame)
{
    struct relay_member *m = f->m;
    uint32_t batch = m->feed.have / m->plan.batch_pieces;

    pst_assert(m->feed.have < m->plan.count);
    pst_assert(m->batches <= m->plan.batch_count);
    if (batch < m->batches)
        return 0; /* of the parent before */
    f->wrong = relay_batch_take(frame, f->place->key, &m->plan, batch) < 0;
    if (f->wrong)
        return link_fail(f->link, -EBADMSG, "the parent's tree, or its digests, are not the source's");
    m->batches = batch + 1;
    return 0;
}

/* The manifest is the source's if the first digests are, whose signature is of both. */
static int receive_plan(struct following *f)
{
    struct relay_member *m = f->m;
    struct pst_reader frame;
    enum link_type type;
    struct carry_share share = {.budget = NULL};
    int r = carry_receive_entries(f->link, &share, &m->plan.m);

    pst_assert(!m->has_plan);
    pst_assert(m->batches == 0);
    m->plan.blake2b = f->place->blake2b;
    if (r == 0 &&
        (relay_plan_cut(&m->plan, f->place->piece_bytes) < 0 || m->plan.count != f->place->pieces)) {
        f->wrong = true;
        r = link_fail(f->link, -EBADMSG, "the parent's tree is not the source's");
    }
    if (r == 0)
        r = link_receive(f->link, LINK_DIGESTS, &type, &frame);
    if (r == 0)
        r = take_batch(f, &frame);
    if (r < 0) {
        relay_plan_fini(&m->plan);
        return r;
    }
    m->has_plan = true;
    relay_feed_plan(&m->feed, &m->plan, 0); /* those behind begin at once, too */
    return begin_sink(f);
}

/* ---- pieces ---- */

static int write_piece(struct relay_member *m, uint32_t piece, const uint8_t *data,
                       char fault[PST_FAULT_BYTES])
{
    struct pst_piece_walk walk;
    struct pst_piece_part part;
    int r = 0;

    pst_piece_walk(&m->plan.pieces, piece, &walk);
    pthread_mutex_lock(&m->sink_lock);
    while (r == 0 && pst_piece_next(&walk, &part)) {
        r = m->sink->write(m->sink_ctx, part.entry, part.at, pst_is_zeros(data, part.bytes) ? NULL : data,
                           part.bytes, fault);
        data += part.bytes;
    }
    pthread_mutex_unlock(&m->sink_lock);
    return r;
}

static int take_piece(struct following *f, struct pst_reader *frame)
{
    struct relay_member *m = f->m;
    uint32_t piece = (uint32_t)pst_read_number(frame, 4);
    uint8_t digest[PST_SHA256_BYTES];
    char fault[PST_FAULT_BYTES] = "";
    int r;

    if (frame->bad || piece != m->feed.have || piece / m->plan.batch_pieces >= m->batches ||
        frame->left != pst_piece_length(&m->plan.pieces, piece)) {
        f->wrong = true;
        return link_fail(f->link, -EPROTO, "the parent sent another piece than the next");
    }
    relay_digest(m->plan.blake2b, frame->at, frame->left, digest);
    if (memcmp(digest, m->plan.digests[piece], sizeof(digest)) != 0) {
        f->wrong = true;
        return link_fail(f->link, -EBADMSG, "piece %u is not what the source has", piece);
    }
    pst_assert(m->begun);
    pst_assert(piece < m->plan.count);
    r = write_piece(m, piece, frame->at, fault);
    if (r < 0)
        return follow_fail(f, r, fault);
    m->piece_ms = pst_now_ms();
    relay_feed_add(&m->feed);
    if (m->options->progress)
        m->options->progress(m->options->ctx,
                             pst_min((piece + 1ull) * m->plan.pieces.piece_bytes, m->plan.m.file_bytes),
                             m->plan.m.file_bytes);
    return 0;
}

/* Empty files are in no piece; they come last, so that nobody behind waits for them. */
static int make_empty(struct relay_member *m, char fault[PST_FAULT_BYTES])
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < m->plan.m.count; i++) {
        if (m->plan.m.entries[i].kind != PST_ENTRY_FILE || m->plan.m.entries[i].bytes > 0)
            continue;
        pthread_mutex_lock(&m->sink_lock);
        r = m->sink->write(m->sink_ctx, i, 0, NULL, 0, fault);
        pthread_mutex_unlock(&m->sink_lock);
    }
    return r;
}

/* Everything has come: the tree gets its place, the store is told, and then the parent, which may leave. */
static int settle(struct following *f)
{
    struct relay_member *m = f->m;
    char ignored[PST_FAULT_BYTES], fault[PST_FAULT_BYTES] = "";
    int r = make_empty(m, fault);

    pst_assert(m->feed.have == m->plan.count);
    pthread_mutex_lock(&m->sink_lock);
    if (r == 0)
        r = m->sink->end(m->sink_ctx, fault);
    pthread_mutex_unlock(&m->sink_lock);
    if (r < 0)
        return follow_fail(f, r, fault);
    f->all = true;
    member_tell(m, RELAY_DONE, f->place->parent_rank, NULL, ignored); /* if not, it is told again */
    return link_send(f->link, LINK_DONE);
}

static int fetch(struct following *f)
{
    struct relay_member *m = f->m;
    struct pst_reader frame;
    enum link_type type;
    int r = send_follow(f);

    if (r == 0 && !m->has_plan)
        r = receive_plan(f);
    while (r == 0 && m->feed.have < m->plan.count) {
        r = link_receive(f->link, 0, &type, &frame);
        if (r == 0 && type != LINK_PIECE && type != LINK_DIGESTS)
            r = link_fail(f->link, -EPROTO, "the parent sent a frame of type %u among its pieces", type);
        if (r == 0)
            r = type == LINK_PIECE ? take_piece(f, &frame) : take_batch(f, &frame);
    }
    return r < 0 ? r : settle(f);
}

/* ---- a parent ---- */

/* The place is still the member's: from now on another one ends the connection. */
static bool begin_parent(struct relay_member *m, const struct relay_place *place, int fd)
{
    bool holds;

    pthread_mutex_lock(&m->lock);
    pst_assert(m->parent_fd < 0);
    holds = m->place.parent_rank == place->parent_rank;
    m->parent_fd = holds ? fd : -1;
    pthread_mutex_unlock(&m->lock);
    return holds;
}

static void end_parent(struct relay_member *m)
{
    pthread_mutex_lock(&m->lock);
    m->parent_fd = -1;
    pthread_mutex_unlock(&m->lock);
}

enum follow_end member_follow(struct relay_member *m, const struct relay_place *place, int *error,
                              char fault[PST_FAULT_BYTES])
{
    const struct pst_carry_options options = {.token = m->options->token};
    bool is_source = place->port == 0;
    pst_cleanup_close int fd =
        pst_carry_connect(is_source ? m->options->host : place->host,
                          is_source ? m->options->port : place->port, MEMBER_CONNECT_MS, fault);
    struct link link;
    struct following f = {.m = m, .place = place, .link = &link};
    int r = fd < 0 ? fd : link_open(&link, fd, PST_CHAIN_SILENCE_MS, fault);

    if (fd < 0 || !begin_parent(m, place, fd)) {
        if (fd >= 0)
            link_close(&link);
        return FOLLOW_SILENT;
    }
    link.eager = true;
    if (r == 0)
        r = carry_greet(&link, CARRY_FOLLOW, m->options->name, &options);
    link_trust(&link);
    if (r == 0)
        r = fetch(&f);
    end_parent(m);
    link_close(&link);
    *error = r;
    if (f.all)
        return FOLLOW_ALL;
    if (f.wrong)
        return FOLLOW_WRONG;
    return f.failed || (is_source && link.told) ? FOLLOW_FAILED : FOLLOW_SILENT;
}
