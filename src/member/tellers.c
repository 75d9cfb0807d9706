/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tellers.c: which keys came and went, told to each process that has a share of the directory. What the
 * first share is told travels with the heartbeats to the leading master (member.c). The others have channels
 * that nobody waits for: a process that is away holds up neither the lease nor the other shares.
 */
#include "member/member_priv.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/ms.h"

#include <stdio.h>

enum {
    RING_MAX = 65536,   /* events that wait to be told; more make a full report */
    SCANNED_MAX = 4096, /* for a portion of a report, of keys that are not told */
    ALONE_MS_MAX = 1000,
};

/* ---- what is told ---- */

/* Where a key with a home is, the pool map says. */
static bool is_told(const struct pst_member *m, const void *key, size_t key_bytes)
{
    return pst_serving_partition_of(m->serving, (struct pst_bytes){key, key_bytes}) == PST_PARTITIONS;
}

static struct pst_event event_of(const struct pst_member *m, const void *key, size_t key_bytes,
                                 uint64_t generation, enum pst_pool_tier tier)
{
    return (struct pst_event){.key = pst_hash128(key, key_bytes, m->as.seed),
                              .generation = generation,
                              .kind = PST_EVENT_ADD,
                              .tier = (uint8_t)tier};
}

static enum pst_pool_tier tier_of(bool on_ssd, bool on_device)
{
    return on_ssd ? PST_POOL_SSD : on_device ? PST_POOL_HBM : PST_POOL_DRAM;
}

static uint32_t share_of(const struct pst_member *m, const struct pst_event *event)
{
    pst_assert(m->teller_count >= 1);
    return pst_map_share_of(&event->key, m->teller_count);
}

/*
 * Each portion is a listing of its own: what it shows is there when it is told. One that was fetched before,
 * and waits, would name keys whose end has been told meanwhile.
 */
static uint32_t walk(void *ctx, bool again, struct pst_event *to, uint32_t room, bool *ended)
{
    struct pst_teller *t = ctx;
    struct pst_member *m = t->member;
    struct penstock_list_options from = {.size = sizeof(from), .start = t->walked};
    struct penstock_list *list = NULL;
    struct penstock_entry entry;
    uint32_t count = 0, scanned = 0;
    int r;

    if (again) {
        t->walked_bytes = 0;
        t->walk_ns = pst_now_ns();
    }
    from.start_bytes = t->walked_bytes;
    r = penstock_list_open(m->store, &from, &list);
    while (r == 0 && count < room && scanned < SCANNED_MAX && (r = penstock_list_next(list, &entry)) == 1) {
        pst_assert(entry.key_bytes <= sizeof(t->walked));
        scanned++;
        if (is_told(m, entry.key, entry.key_bytes)) {
            to[count] = event_of(m, entry.key, entry.key_bytes, entry.generation,
                                 tier_of(entry.on_ssd, entry.on_device));
            count += share_of(m, &to[count]) == t->share;
        }
        memcpy(t->walked, entry.key, entry.key_bytes);
        t->walked_bytes = entry.key_bytes;
        r = 0;
    }
    penstock_list_close(list);
    t->missed |= r < 0;
    t->walking = count == room || scanned == SCANNED_MAX;
    if (t->walking && t->walked_bytes < sizeof(t->walked))
        t->walked[t->walked_bytes++] = '\0'; /* the first key behind it */
    if (!t->walking)
        t->missed_ns = 2 * pst_now_ns() - t->walk_ns;
    pst_assert(count <= room && t->walked_bytes <= sizeof(t->walked));
    *ended = !t->walking;
    return count;
}

void pst_tellers_miss(struct pst_member *m, bool missed)
{
    pst_assert(m->teller_count <= PST_MAP_SHARES_MAX);
    for (uint32_t i = 0; i < m->teller_count; i++)
        m->tellers[i]->missed = missed;
}

void pst_tellers_take_changes(struct pst_member *m)
{
    struct penstock_event event;

    for (int i = 0; i < RING_MAX && penstock_watch_next(m->watch, 0, &event) == 1; i++) {
        struct pst_event out;

        if (event.what == PENSTOCK_EVENT_MISSED || event.what == PENSTOCK_EVENT_RESET) {
            pst_tellers_miss(m, true);
            continue;
        }
        if (!is_told(m, event.key, event.key_bytes))
            continue;
        out =
            event_of(m, event.key, event.key_bytes, event.generation, tier_of(event.on_ssd, event.on_device));
        if (event.what == PENSTOCK_EVENT_DELETED || event.what == PENSTOCK_EVENT_EVICTED)
            out.kind = PST_EVENT_DEL;
        pst_report_event(m->tellers[share_of(m, &out)]->report, &out);
    }
    for (uint32_t i = 0; i < m->teller_count; i++) {
        struct pst_teller *t = m->tellers[i];

        if (!t->missed || t->walking || pst_now_ns() < t->missed_ns)
            continue;
        pst_report_lost(t->report);
        t->missed = false;
    }
}

size_t pst_teller_put(struct pst_member *m, const struct pst_heartbeat *message, uint64_t sent_ns,
                      uint8_t *question)
{
    struct pst_pool_heartbeat beat = {.epoch = message->epoch,
                                      .sequence = message->sequence,
                                      .sent_ns = sent_ns,
                                      .member = message->member,
                                      .event_count = (uint16_t)message->event_count,
                                      .flags = (uint16_t)message->flags,
                                      .share = (uint8_t)message->share,
                                      .share_last = (uint8_t)message->share_last};

    memcpy(beat.pool, m->as.pool, sizeof(beat.pool));
    _Static_assert((int)PST_HEARTBEAT_COPIES == (int)PST_POOL_COPIED, "flags of a heartbeat");
    _Static_assert((int)PST_MAP_SHARES_MAX <= UINT8_MAX, "shares in a heartbeat");
    if (m->copies_asked)
        beat.flags |= PST_POOL_COPIED;
    _Static_assert((int)PST_HEARTBEAT_EVENTS_MAX <= (int)PST_POOL_EVENTS_MAX, "events of a heartbeat");
    pst_assert(message->event_count <= pst_count_of(m->events) && message->epoch == m->as.epoch);
    for (uint32_t i = 0; i < message->event_count; i++) {
        const struct pst_event *event = &message->events[i];

        m->events[i] = (struct pst_pool_event){
            .key = event->key, .generation = event->generation, .kind = event->kind, .tier = event->tier};
    }
    for (uint32_t i = 0; i < PST_POOL_TIER_COUNT; i++)
        beat.tiers[i] =
            (struct pst_pool_use){message->tiers[i + 1].capacity_bytes, message->tiers[i + 1].used_bytes};
    return pst_pool_put_heartbeat(question, &beat, m->events);
}

/* ---- those of the other shares ---- */

/* The same trouble is logged once. The share is asked again in a moment. */
static void teller_fails(struct pst_teller *t, const char *why)
{
    char line[sizeof(t->said)];

    pst_assert(t->share > 0);
    pst_assert(!t->underway);
    t->channel = pst_channel_close(t->channel);
    t->alone_ms = (uint32_t)pst_min(t->alone_ms + RETRY_MS, ALONE_MS_MAX);
    t->retry_ns = pst_deadline_ns(pst_now_ns(), t->alone_ms);
    t->tried = true;
    snprintf(line, sizeof(line), "share %u of the directory: %s", t->share, why);
    if (strcmp(line, t->said) == 0)
        return;
    memcpy(t->said, line, sizeof(line));
    pst_member_say(t->member, line);
}

static bool teller_dials(struct pst_teller *t)
{
    struct pst_channel_options options = t->member->options;
    const char *fault = "";
    int r;

    if (t->channel)
        return true;
    options.address = t->at;
    options.impatient = true;
    r = pst_channel_begin(&options, &t->channel, &fault);
    if (r < 0)
        teller_fails(t, *fault ? fault : strerror(-r));
    return r == 0;
}

static void teller_sends(struct pst_teller *t)
{
    struct pst_member *m = t->member;
    const struct pst_heartbeat *message;
    uint32_t shards;
    uint64_t sent_ns;

    pst_assert(!t->underway && m->joined);
    if (!teller_dials(t))
        return;
    message = pst_report_next(t->report, m->tiers, pst_clock_read_ns(CLOCK_BOOTTIME), &sent_ns);
    pst_assert(message->share == t->share || message->share_last + 1u != m->teller_count);
    t->sequence = message->sequence;
    t->op = (struct penstock_op){
        .code = PST_POOL_HEARTBEAT, .attrs = t->question, .data = t->answer, .bytes = sizeof(t->answer)};
    t->op.attr_bytes = (uint16_t)pst_teller_put(m, message, sent_ns, t->question);
    shards = pst_channel_shards(t->channel);
    t->underway = true;
    pst_channel_submit(t->channel, &t->op, shards ? (int)(m->self.start % shards) : 0, &t->done);
}

/* What the process with the share says of the heartbeat. */
static void teller_takes(struct pst_teller *t, const struct pst_pool_beat *beat)
{
    struct pst_member *m = t->member;
    struct pst_heartbeat_answer answer = {.sequence_next = beat->sequence_next, .sync = beat->sync};
    int r = t->op.result;

    pst_assert(!t->underway);
    pst_assert(t->share > 0);
    t->beat_ns = pst_deadline_ns(pst_now_ns(), m->as.heartbeat_ms);
    t->alone_ms = 0;
    if (r == -ESTALE || r == -EILSEQ) /* its pool map may be another one, for a moment */
        t->retry_ns = pst_deadline_ns(pst_now_ns(), RETRY_MS);
    if (pst_report_answered(t->report, t->sequence, r, &answer) == -ESTALE) {
        pst_report_join(t->report, m->as.member, m->as.epoch);
        return;
    }
    if (r != 0)
        return;
    t->said[0] = '\0';
    t->tried = true;
    pst_repairer_tell(m->repairer, &(struct pst_repair_time){.repair = beat->repair,
                                                             .pool = *pst_member_pool(m),
                                                             .epoch = m->as.epoch,
                                                             .seed = m->as.seed,
                                                             .member = m->as.member,
                                                             .share = t->share,
                                                             .share_last = (uint16_t)(m->teller_count - 1),
                                                             .master = t->at});
}

static void teller_answered(struct pst_teller *t)
{
    struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX];
    struct pst_pool_beat beat = {.version = 0};
    struct pst_member *m = t->member;
    int r = t->op.result;

    pst_assert(t->underway && t->done.count == 1);
    pst_assert(t->channel);
    t->done = (struct pst_op_list){0};
    t->underway = false;
    if (!m->joined || t->epoch != m->as.epoch) /* it was about a membership that has ended */
        return;
    if (r == -ESTALE)
        teller_takes(t, &beat);
    else if ((r == 0 || r == -EALREADY || r == -EILSEQ || r == -EINVAL) &&
             pst_pool_get_beat((struct pst_bytes){t->answer, t->op.value_bytes}, &beat, wants) == 0 &&
             memcmp(beat.pool, m->as.pool, sizeof(beat.pool)) == 0)
        teller_takes(t, &beat);
    else
        teller_fails(t, r == PST_POOL_STANDBY ? "the process has it no more, or not yet"
                                              : penstock_result_text(r < 0 ? r : -EPROTO));
}

void pst_tellers_turn(struct pst_member *m)
{
    for (uint32_t i = 1; i < m->teller_count; i++) {
        struct pst_teller *t = m->tellers[i];
        uint64_t now_ns;

        if (t->channel)
            pst_channel_poll(t->channel);
        if (t->done.count)
            teller_answered(t);
        now_ns = pst_now_ns();
        if (m->joined && t->named && !t->underway && now_ns >= t->retry_ns && t->epoch == m->as.epoch &&
            (now_ns >= t->beat_ns || pst_report_is_behind(t->report)))
            teller_sends(t);
        if (t->channel)
            pst_channel_flush(t->channel);
    }
}

uint32_t pst_tellers_arm(struct pst_member *m, struct pollfd *fds, uint64_t *ms)
{
    uint32_t count = 0;

    for (uint32_t i = 1; i < m->teller_count; i++) {
        struct pst_teller *t = m->tellers[i];
        uint64_t now_ns = pst_now_ns(), due_ns = pst_max(t->beat_ns, t->retry_ns);
        int r;

        if (m->joined && t->named && !t->underway && t->epoch == m->as.epoch)
            *ms = pst_min(*ms, due_ns > now_ns ? (due_ns - now_ns) / 1000000 + 1 : 0);
        if (!t->channel || !t->underway)
            continue;
        r = pst_channel_arm(t->channel);
        if (r < 0)
            *ms = pst_min(*ms, r == -EAGAIN ? 0 : BUSY_MS);
        else
            fds[count++] = (struct pollfd){.fd = pst_channel_fd(t->channel), .events = POLLIN};
    }
    pst_assert(count < PST_MAP_SHARES_MAX);
    return count;
}

bool pst_tellers_tried(const struct pst_member *m)
{
    for (uint32_t i = 1; i < m->teller_count; i++)
        if (m->tellers[i]->named && !m->tellers[i]->tried)
            return false;
    return true;
}

/* ---- beginning and end ---- */

static struct pst_teller *teller_close(struct pst_teller *t)
{
    if (!t)
        return NULL;
    pst_channel_close(t->channel); /* what is underway on it ends with it */
    pst_report_close(t->report);
    free(t);
    return NULL;
}

static int teller_open(struct pst_member *m, uint32_t share, struct pst_teller **out)
{
    struct pst_teller *t = calloc(1, sizeof(*t));
    int r;

    pst_assert(share < PST_MAP_SHARES_MAX);
    if (!t)
        return -ENOMEM;
    t->member = m;
    t->share = (uint16_t)share;
    r = pst_report_open(RING_MAX, PST_HEARTBEAT_EVENTS_MAX, walk, t, &t->report);
    if (r < 0)
        teller_close(t);
    else
        *out = t;
    return r;
}

int pst_tellers_open(struct pst_member *m)
{
    int r;

    pst_assert(m->teller_count == 0);
    r = teller_open(m, 0, &m->tellers[0]);
    m->teller_count = r == 0;
    return r;
}

void pst_tellers_close(struct pst_member *m)
{
    while (m->teller_count > 0) {
        m->teller_count--;
        m->tellers[m->teller_count] = teller_close(m->tellers[m->teller_count]);
    }
}

/* Who has the share is another process, or nobody; an address that cannot be parsed is nowhere. */
static void teller_follows(struct pst_teller *t, const struct pst_map_share *share)
{
    struct pst_boot_address at = {0};
    const char *why;
    bool named = *share->address && pst_boot_address_parse(share->address, &at, &why) == 0;

    pst_assert(t->share > 0);
    if (t->start == share->start && t->named == named && memcmp(&t->at, &at, sizeof(at)) == 0)
        return;
    t->channel = pst_channel_close(t->channel);
    t->underway = false;
    t->done = (struct pst_op_list){0};
    t->at = at;
    t->start = share->start;
    t->named = named;
    t->tried = false;
    t->retry_ns = t->beat_ns = t->alone_ms = 0;
    pst_report_lost(t->report);
}

int pst_tellers_follow(struct pst_member *m, const struct pst_map *map)
{
    pst_assert(m->teller_count >= 1);
    pst_assert(map->share_count >= 1 && map->share_count <= PST_MAP_SHARES_MAX);
    while (m->teller_count > map->share_count) {
        m->teller_count--;
        m->tellers[m->teller_count] = teller_close(m->tellers[m->teller_count]);
    }
    while (m->teller_count < map->share_count) {
        int r = teller_open(m, m->teller_count, &m->tellers[m->teller_count]);

        if (r < 0)
            return r;
        m->teller_count++;
    }
    for (uint32_t i = 0; i < m->teller_count; i++) {
        struct pst_teller *t = m->tellers[i];

        pst_assert(t->share == i);
        pst_report_of_share(t->report, t->share, (uint16_t)(m->teller_count - 1));
        if (i > 0 && t->epoch != m->as.epoch) {
            pst_report_join(t->report, m->as.member, m->as.epoch);
            t->epoch = m->as.epoch;
            t->retry_ns = t->beat_ns = 0;
            t->tried = false;
        }
        if (i > 0)
            teller_follows(t, &map->shares[i]);
    }
    return 0;
}
