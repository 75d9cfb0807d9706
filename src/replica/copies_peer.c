/* SPDX-License-Identifier: Apache-2.0 */
/* copies_peer.c: channels to nodes that hold copies, and to this one, and the ends of what was sent there. */
#include "replica/copies_priv.h"

uint64_t copies_member_epoch(const struct pst_copies *c, uint16_t member)
{
    pst_assert(c->map);
    const struct pst_map_member *m = member < c->map->members_max ? &c->map->members[member] : NULL;

    return m && !m->gone ? m->epoch : 0;
}

static void close_peer(struct pst_copies *c, struct peer *p)
{
    pst_assert(p->underway == 0);
    pst_assert(p == &c->self || (p->epoch != 0) == (p->way != NULL));
    if (p->way)
        c->net->close(c->net_ctx, p->way);
    *p = (struct peer){.epoch = 0};
}

/* A place for one more, if need be the one that has been idle for longest. Failed ones are closed in their
 * turn. NULL: all are busy. */
static struct peer *peer_take(struct pst_copies *c)
{
    struct peer *idle = NULL;

    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct peer *p = &c->peers[i];

        if (!p->epoch)
            return p;
        if (p->underway == 0 && !p->failed && p != c->join.peer && (!idle || p->used_ns < idle->used_ns))
            idle = p;
    }
    if (idle)
        close_peer(c, idle);
    return idle;
}

struct peer *copies_peer(struct pst_copies *c, uint16_t member, uint64_t epoch, bool *busy)
{
    struct peer *p;

    pst_assert(c->map);
    *busy = false;
    if (!epoch || copies_member_epoch(c, member) != epoch) /* 0 is what a free peer has */
        return NULL;
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (c->peers[i].epoch == epoch && !c->peers[i].failed)
            return &c->peers[i];
    p = peer_take(c);
    *busy = !p;
    if (!p)
        return NULL;
    pst_assert(!p->way);
    pst_assert(p->underway == 0);
    pst_assert(!p->failed);
    if (c->net->open(c->net_ctx, &c->map->members[member], &p->way) < 0)
        return NULL;
    pst_assert(p->way);
    p->member = member;
    p->epoch = epoch;
    p->used_ns = c->now_ns;
    return p;
}

bool copies_self(struct pst_copies *c)
{
    return c->self.way || c->net->open(c->net_ctx, NULL, &c->self.way) == 0;
}

struct send *copies_send_new(struct peer *peer)
{
    struct send *send = calloc(1, sizeof(*send));

    pst_assert(peer->way);
    if (send)
        send->peer = peer;
    return send;
}

void copies_submit(struct pst_copies *c, struct send *send, int shard)
{
    pst_assert(send->peer->way);
    pst_assert(send->ended);
    pst_assert(send->op.code);
    pst_assert(send->peer == &c->self || (send->peer->epoch && !send->peer->failed));
    send->op.user = send;
    send->peer->underway++;
    send->peer->used_ns = c->now_ns;
    c->net->submit(c->net_ctx, send, shard);
}

void copies_send_free(struct send *send)
{
    if (!send)
        return;
    free(send->flat);
    free(send);
}

int copies_read_swept(const struct send *send, const uint8_t *data, uint8_t resume[PST_WIRE_KEY_BYTES_MAX],
                      size_t *resume_bytes)
{
    struct pst_wire_sweep swept;

    pst_assert(send->op.code == PST_WIRE_COPY_CLEAR);
    pst_assert(send->op.data == data);
    if (send->op.result != 0 || send->op.value_bytes < sizeof(swept))
        return -EPROTO;
    memcpy(&swept, data, sizeof(swept));
    if (swept.done)
        return 1;
    if (swept.resume_bytes > send->op.value_bytes - sizeof(swept) ||
        swept.resume_bytes > PST_WIRE_KEY_BYTES_MAX)
        return -EPROTO;
    memcpy(resume, data + sizeof(swept), swept.resume_bytes);
    *resume_bytes = swept.resume_bytes;
    return 0;
}

bool copies_is_refusal(int result)
{
    return result == -ENOSPC || result == -EFBIG || result == -EDQUOT || result == -ENOMEM ||
           result == -EOPNOTSUPP;
}

void copies_ended_send(struct pst_copies *c, struct send *send)
{
    struct peer *p = send->peer;
    int result = send->op.result;

    pst_assert(p->underway > 0);
    pst_assert(p->way);
    pst_assert(send->op.user == send);
    pst_assert(!send->replica || send->replica->sends > 0);
    p->underway--;
    /* Whether it was done is not known, and an old message may come after a new one. */
    p->failed |= send->replica && result < 0 && !copies_is_refusal(result) && result != -ESTALE;
    p->failed |= result == PENSTOCK_UNKNOWN;
    send->ended(c, send);
    copies_send_free(send);
}

void copies_peers_follow_map(struct pst_copies *c)
{
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct peer *p = &c->peers[i];

        p->failed |= p->epoch && copies_member_epoch(c, p->member) != p->epoch;
    }
}

void copies_close_failed(struct pst_copies *c)
{
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (c->peers[i].failed && c->peers[i].underway == 0 && c->join.peer != &c->peers[i])
            close_peer(c, &c->peers[i]);
}

void copies_close_peers(struct pst_copies *c)
{
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        close_peer(c, &c->peers[i]);
    close_peer(c, &c->self);
}

uint32_t copies_underway(const struct pst_copies *c)
{
    uint32_t count = c->self.underway;

    for (uint32_t i = 0; i < PEERS_MAX; i++)
        count += c->peers[i].underway;
    return count;
}
