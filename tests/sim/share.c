/* SPDX-License-Identifier: Apache-2.0 */
/* share.c: processes that have a share of the directory: they say so to the master, take its pool map, and
 * come and go. What src/master/follow.c does, in the simulator's time. */
#include "sim.h"

#include <stdio.h>

int share_who(const struct sim *s, uint32_t key)
{
    uint32_t share = share_of(key, s->share_count);

    return share ? SHARE_0 - (int)share : MASTER;
}

struct pst_directory *share_directory(const struct sim *s, uint32_t number)
{
    return number ? s->shares[number].directory : s->directory;
}

struct pst_directory *directory_of(const struct sim *s, uint32_t key)
{
    return share_directory(s, share_of(key, s->share_count));
}

static uint64_t share_now(const struct sim *s, const struct share *share)
{
    return s->now_ns + share->offset_ns;
}

/* Often where the one before was, and else elsewhere. */
void share_start(struct sim *s, uint32_t number)
{
    struct share *share = &s->shares[number];

    pst_assert(number > 0 && !share->up && !share->directory);
    share->up = true;
    share->start = draw(s, UINT64_MAX - 1) + 1;
    share->offset_ns = draw(s, 1000000) * MS;
    share->asked_ns = share->heard_ns = share->tick_ns = 0;
    if (!*share->address || draw(s, 3) == 0)
        (void)snprintf(share->address, sizeof(share->address), "host%llu:1",
                       (unsigned long long)draw(s, UINT32_MAX));
    note(s, "share %u starts at %s", number, share->address);
    timer(s, SHARE_0 - (int)number, ++share->session, MS);
}

static void forget(struct share *share)
{
    share->directory = pst_directory_close(share->directory);
    snapshot_drop(share->snapshot);
    share->snapshot = NULL;
}

void share_crash(struct sim *s, uint32_t number)
{
    struct share *share = &s->shares[number];

    note(s, "share %u crashes", number);
    forget(share);
    share->up = false;
    share->session++;
    share->frozen_until_ns = 0;
}

void share_close(struct sim *s, uint32_t number)
{
    forget(&s->shares[number]);
}

/* ---- the master ---- */

static void say_so(struct sim *s, uint32_t number)
{
    struct share *share = &s->shares[number];
    struct message *m = message_new(TO_SHARE, SHARE_0 - (int)number, MASTER);

    m->session = share->session;
    m->request = s->now_ns;
    m->share.number = number;
    m->share.start = share->start;
    memcpy(m->share.address, share->address, sizeof(share->address));
    share->asked_ns = s->now_ns;
    send(s, m);
}

static void take_map(struct sim *s, uint32_t number, struct snapshot *snapshot)
{
    struct share *share = &s->shares[number];
    int r = -ESTALE;

    if (share->directory)
        r = pst_directory_follow(share->directory, snapshot->map, share_now(s, share));
    if (r == -ESTALE) {
        forget(share);
        r = pst_directory_open_share(&s->settings, snapshot->map, number, share->start, share_now(s, share),
                                     &share->directory);
    }
    pst_assert(r == 0);
    snapshot_ref(snapshot);
    snapshot_drop(share->snapshot);
    share->snapshot = snapshot;
}

static void take_shared(struct sim *s, uint32_t number, const struct message *m)
{
    struct share *share = &s->shares[number];

    if (m->result < 0) { /* another one has it, which is gone */
        forget(share);
        return;
    }
    if (!m->snapshot || m->request < share->heard_ns)
        return;
    share->heard_ns = m->request;
    if (!share->snapshot || m->snapshot->map->version >= share->snapshot->map->version)
        take_map(s, number, m->snapshot);
}

/* ---- messages ---- */

static void on_timer(struct sim *s, uint32_t number)
{
    struct share *share = &s->shares[number];

    timer(s, SHARE_0 - (int)number, share->session, 20 * MS);
    if (share->directory && s->now_ns >= share->tick_ns) {
        pst_directory_tick(share->directory, share_now(s, share));
        share->tick_ns = s->now_ns + 100 * MS;
    }
    if (s->now_ns >= share->asked_ns + s->settings.heartbeat_ms * MS)
        say_so(s, number);
}

void share_take(struct sim *s, uint32_t number, const struct message *m)
{
    struct share *share = &s->shares[number];
    uint64_t late_ns = s->settings.heartbeat_ms * s->settings.heartbeats_missed * MS;
    const struct seat seat = {share->directory, SHARE_0 - (int)number, share_now(s, share),
                              s->now_ns < share->heard_ns + late_ns, share->snapshot};

    if (!share->up || ((m->kind == TIMER || m->kind == IS_SHARED) && m->session != share->session))
        return;
    if (m->kind == TIMER)
        on_timer(s, number);
    else if (m->kind == IS_SHARED)
        take_shared(s, number, m);
    else if (share->directory)
        seat_take(s, &seat, m);
}
