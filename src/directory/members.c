/* SPDX-License-Identifier: Apache-2.0 */
/* members.c: who is a member: registrations, heartbeats with what nodes report, and the end of the silent. */
#include "directory/directory_priv.h"

#include "base/ms.h"

/* The one of that membership; NULL: it has ended, or is about to. */
static struct member *member_of(const struct pst_directory *d, uint16_t number, uint64_t epoch)
{
    directory_check(d);
    if (number >= d->settings.members_max || epoch == 0 || d->members[number].epoch != epoch)
        return NULL;
    return member_stays(d, number) ? &d->members[number] : NULL;
}

bool member_stays(const struct pst_directory *d, uint16_t number)
{
    const struct pst_map_member *next = &d->draft->members[number];

    pst_assert(number < d->settings.members_max);
    return d->members[number].epoch != 0 && next->epoch == d->members[number].epoch && !next->gone;
}

bool member_drains(const struct pst_directory *d, uint16_t number)
{
    pst_assert(number < d->settings.members_max);
    return d->draft->members[number].drains;
}

uint64_t member_lease_end_ns(const struct pst_directory *d, uint16_t number)
{
    const struct member *m = &d->members[number];

    pst_assert(number < d->settings.members_max);
    return pst_deadline_ns(pst_max(pst_deadline_ns(m->heard_ns, d->settings.lease_ms), m->before_ns),
                           d->settings.lease_margin_ms);
}

bool member_lease_is_over(const struct pst_directory *d, uint16_t number, uint64_t now_ns)
{
    return now_ns >= member_lease_end_ns(d, number);
}

uint64_t members_late_ns(const struct pst_directory *d)
{
    pst_assert(d->settings.heartbeat_ms > 0);
    pst_assert(d->settings.heartbeats_missed > 0);
    return pst_ns_of_ms(d->settings.heartbeat_ms * d->settings.heartbeats_missed);
}

bool member_is_suspect(const struct pst_directory *d, uint16_t number, uint64_t now_ns)
{
    const struct member *m = &d->members[number];

    pst_assert(number < d->settings.members_max);
    return now_ns < m->suspect_until_ns || now_ns >= m->heard_ns + members_late_ns(d);
}

void members_wake(struct pst_directory *d, uint64_t now_ns)
{
    /* Threads read the clock, and then wait for each other. */
    uint64_t slept_ns = now_ns > d->awake_ns ? now_ns - d->awake_ns : 0;

    d->awake_ns += slept_ns;
    if (slept_ns < members_late_ns(d))
        return;
    d->counters.pauses++;
    if (d->follows)
        share_wake(d);
    for (uint32_t i = 0; i < d->settings.members_max; i++)
        d->members[i].heard_ns =
            pst_max(d->members[i].heard_ns, pst_min(d->members[i].heard_ns + slept_ns, now_ns));
}

void pst_directory_succeed(struct pst_directory *d, uint64_t until_ns, uint64_t lease_ms)
{
    directory_check(d);
    d->lease_before_ms = lease_ms;
    for (uint32_t i = 0; i < d->settings.members_max; i++) { /* as if each had a lease of that moment */
        d->members[i].heard_ns = pst_max(d->members[i].heard_ns, until_ns);
        d->members[i].before_ns = pst_deadline_ns(d->members[i].heard_ns, lease_ms);
    }
}

uint64_t pst_directory_lease_ms(const struct pst_directory *d, uint64_t now_ns)
{
    bool before = false;

    directory_check(d);
    for (uint32_t i = 0; i < d->settings.members_max; i++)
        before |= d->members[i].epoch && now_ns < d->members[i].before_ns;
    return pst_max(d->settings.lease_ms, before ? d->lease_before_ms : 0);
}

void members_follow_map(struct pst_directory *d, uint64_t now_ns)
{
    d->unreported = 0;
    for (uint32_t i = 0; i < d->settings.members_max; i++) {
        const struct pst_map_member *now = &d->map->members[i];
        uint64_t epoch = now->gone ? 0 : now->epoch;
        struct member *m = &d->members[i];

        pst_assert(!epoch || epoch >= m->epoch); /* who has a number has a later epoch than its last one */
        if (m->epoch == epoch) {
            d->unreported += epoch && !m->synced;
            continue;
        }
        d->repair++;
        d->unreported += epoch != 0;
        if (m->epoch)
            pst_keys_forget(d->keys, (uint16_t)i);
        /* What the draft takes from it already, or a directory before this one has, it must not serve. */
        *m = (struct member){
            .epoch = epoch, .heard_ns = now_ns, .joined_ns = now_ns, .lease_version = d->draft->version};
    }
    pst_assert(d->unreported <= d->settings.members_max);
}

static void end(struct pst_directory *d, uint16_t number, enum pst_left left, uint64_t now_ns)
{
    struct pst_map_member *member = &directory_draft(d)->members[number];

    pst_assert(member_stays(d, number));
    member->gone = true;
    if (!copies_leave(d, number, left, now_ns))
        *member = (struct pst_map_member){.epoch = 0};
}

void members_tick(struct pst_directory *d, uint64_t now_ns)
{
    if (now_ns < d->reap_ns)
        return;
    d->reap_ns = pst_deadline_ns(now_ns, d->settings.reaper_ms);
    for (uint32_t i = 0; i < d->settings.members_max; i++) {
        if (!member_stays(d, (uint16_t)i) || !member_lease_is_over(d, (uint16_t)i, now_ns) ||
            now_ns < pst_deadline_ns(d->members[i].heard_ns, d->settings.member_ttl_ms))
            continue;
        end(d, (uint16_t)i, PST_LEFT_KEPT, now_ns);
        d->counters.deaths++;
    }
}

/* ---- registrations ---- */

static bool texts_fit(const struct pst_register *message)
{
    return strnlen(message->address, PST_MAP_ADDRESS_BYTES) < PST_MAP_ADDRESS_BYTES &&
           strnlen(message->unix_path, PST_MAP_ADDRESS_BYTES) < PST_MAP_ADDRESS_BYTES &&
           strnlen(message->tags, PST_MAP_TAGS_BYTES) < PST_MAP_TAGS_BYTES;
}

/* A number that no pool map refers to: neither the one in effect nor those to come. */
static uint16_t free_number(const struct pst_directory *d)
{
    pst_assert(d->map->members_max == d->draft->members_max);
    for (uint32_t i = 0; i < d->settings.members_max; i++)
        if (!d->map->members[i].epoch && !d->draft->members[i].epoch &&
            !(d->storing_now && d->storing->members[i].epoch))
            return (uint16_t)i;
    return PST_MAP_NONE;
}

static void write_member(struct pst_directory *d, uint16_t number, const struct pst_register *message,
                         enum kept kept)
{
    struct pst_map *draft = directory_draft(d);
    struct pst_map_member *member = &draft->members[number];

    pst_assert(draft->epoch_next > member->epoch);
    pst_assert(number < draft->members_max);
    pst_assert(pst_map_find(draft, &message->id) ==
               (member->epoch ? number : PST_MAP_NONE)); /* an id has one */
    *member = (struct pst_map_member){.id = message->id,
                                      .host = message->host,
                                      .epoch = draft->epoch_next++,
                                      .start = message->start,
                                      .page_bytes = message->page_bytes,
                                      .kept_epoch = kept == KEPT_NOTHING ? 0 : message->kept_epoch};
    memcpy(member->address, message->address, strlen(message->address));
    memcpy(member->unix_path, message->unix_path, strlen(message->unix_path));
    memcpy(member->tags, message->tags, strlen(message->tags));
    d->counters.registrations++;
}

enum { PST_ALREADY = 1 };

/* Whether the id's holder lets go of it. Return: 0, PST_ALREADY it is the one that asks, or an error. */
static int take_over(struct pst_directory *d, uint16_t number, uint64_t start, uint64_t now_ns)
{
    const struct pst_map_member *holder = &d->draft->members[number];

    pst_assert(holder->epoch > 0);
    if (holder->gone)
        return d->members[number].epoch ? -EAGAIN : 0; /* until its end has taken effect */
    if (holder->start == start)
        return PST_ALREADY;
    if (!member_stays(d, number))
        return -EAGAIN;
    if (!member_lease_is_over(d, number, now_ns)) {
        d->counters.refused_twice++;
        return -EEXIST;
    }
    return 0;
}

/* One that began empty, and was never a member since, does not know the epoch. Nor does one that never heard
 * that it was taken in: that is the same process, or the next one, and nothing was written in between. */
static enum kept kept_of(const struct pst_map_member *before, const struct pst_register *message)
{
    if (message->start == before->start)
        return KEPT_ALL;
    if (!message->kept_epoch ||
        (message->kept_epoch != before->epoch && message->kept_epoch != before->kept_epoch))
        return KEPT_NOTHING;
    return message->kept_durable ? KEPT_DURABLE : KEPT_ALL;
}

int pst_directory_register(struct pst_directory *d, const struct pst_register *message, uint64_t now_ns,
                           struct pst_registered *out)
{
    uint16_t number = pst_map_find(d->draft, &message->id);
    bool known;
    int r = 0;

    directory_check(d);
    if (!texts_fit(message))
        return -EINVAL;
    if (number != PST_MAP_NONE)
        r = take_over(d, number, message->start, now_ns);
    else if ((number = free_number(d)) == PST_MAP_NONE)
        r = -ENOSPC;
    if (r == -EEXIST)
        out->holder = &d->draft->members[number];
    if (r < 0)
        return r;
    if (r != PST_ALREADY) {
        enum kept kept = kept_of(&d->draft->members[number], message);

        if (kept != KEPT_NOTHING && !copies_are_told(d, number, now_ns))
            return -EAGAIN;
        copies_return(d, number, kept, now_ns);
        write_member(d, number, message, kept);
    }
    pst_assert(number < d->settings.members_max);
    pst_assert(d->draft->members[number].epoch > 0);
    /* Who asks again is not to wait for what others change meanwhile. */
    known = d->map->members[number].epoch == d->draft->members[number].epoch;
    *out = (struct pst_registered){.member = number,
                                   .epoch = d->draft->members[number].epoch,
                                   .version = known ? d->map->version : d->draft->version,
                                   .heartbeat_ms = d->settings.heartbeat_ms};
    return 0;
}

int pst_directory_unregister(struct pst_directory *d, uint16_t number, uint64_t epoch, enum pst_left left,
                             uint64_t now_ns, uint64_t *version)
{
    if (!member_of(d, number, epoch))
        return -ESTALE;
    end(d, number, left, now_ns);
    *version = d->draft->version;
    return 0;
}

void members_drain(struct pst_directory *d, uint16_t number)
{
    pst_assert(number < d->settings.members_max);
    d->members[number].looked = false;
    d->members[number].keys_left = d->members[number].alone_left = 0;
    d->repair++;
}

int pst_directory_drain(struct pst_directory *d, const struct pst_id *id, bool drains, uint64_t *version)
{
    uint16_t number = pst_map_find(d->draft, id);

    directory_check(d);
    if (number == PST_MAP_NONE || !member_stays(d, number))
        return -ESTALE;
    if (member_drains(d, number) != drains) {
        directory_draft(d)->members[number].drains = drains;
        members_drain(d, number);
    }
    /* Who asks again is not to wait for what others change meanwhile. */
    *version = d->map->members[number].drains == drains ? d->map->version : d->draft->version;
    return 0;
}

int pst_directory_suspect(struct pst_directory *d, uint16_t number, uint64_t epoch, uint64_t now_ns)
{
    struct member *m = member_of(d, number, epoch);

    if (!m)
        return -ESTALE;
    m->suspect_until_ns = pst_deadline_ns(now_ns, d->settings.suspect_ms);
    return 0;
}

/* ---- heartbeats ---- */

static bool heartbeat_is_good(const struct member *m, const struct pst_heartbeat *message)
{
    bool begins = message->flags & PST_HEARTBEAT_BEGIN;

    if (message->event_count > PST_HEARTBEAT_EVENTS_MAX || message->sequence == 0 ||
        message->sequence == UINT64_MAX ||
        message->flags & ~(uint32_t)(PST_HEARTBEAT_BEGIN | PST_HEARTBEAT_END | PST_HEARTBEAT_COPIES))
        return false;
    if (message->flags & PST_HEARTBEAT_END && !begins && !m->filling && message->sequence == m->sequence_next)
        return false;
    for (uint32_t i = 0; i < message->event_count; i++)
        if (message->events[i].kind > PST_EVENT_DEL || message->events[i].tier < PST_POOL_HBM ||
            message->events[i].tier >= PST_POOL_TIERS)
            return false;
    for (uint32_t i = 0; i < PST_POOL_TIERS; i++)
        if (message->tiers[i].capacity_bytes > PST_TIER_BYTES_MAX ||
            message->tiers[i].used_bytes > PST_TIER_BYTES_MAX)
            return false;
    return true;
}

/* Whether it is the next one. */
static int in_order(const struct pst_directory *d, const struct member *m,
                    const struct pst_heartbeat *message)
{
    if (message->sequence < m->sequence_next)
        return -EALREADY;
    if (!share_is_told(d, message))
        return -EILSEQ;
    if (message->flags & PST_HEARTBEAT_BEGIN)
        return 0;
    return message->sequence == m->sequence_next ? 0 : -EILSEQ;
}

static void take_event(struct pst_directory *d, uint16_t number, const struct pst_event *event)
{
    struct pst_place place = {.generation = event->generation, .member = number, .tier = event->tier};

    pst_assert(event->kind <= PST_EVENT_DEL);
    pst_assert(number < d->settings.members_max);
    pst_assert(event->tier < PST_POOL_TIERS); /* heartbeat_is_good() */
    if (event->kind == PST_EVENT_DEL) {
        pst_keys_remove(d->keys, event->key, place);
        return;
    }
    place.copies = reserve_met(d, &event->key, number);
    if (pst_keys_add(d->keys, event->key, place) < 0)
        d->counters.adds_dropped++;
}

static void take_events(struct pst_directory *d, struct member *m, const struct pst_heartbeat *message,
                        uint64_t now_ns)
{
    pst_assert(message->sequence >= m->sequence_next && message->sequence < UINT64_MAX);
    pst_assert(message->event_count <= PST_HEARTBEAT_EVENTS_MAX);
    m->sequence_next = message->sequence + 1;
    if (message->flags & PST_HEARTBEAT_BEGIN) {
        pst_keys_begin(d->keys, message->member);
        m->filling = true;
    }
    for (uint32_t i = 0; i < message->event_count; i++)
        take_event(d, message->member, &message->events[i]);
    d->counters.events += message->event_count;
    if (message->flags & PST_HEARTBEAT_END) {
        pst_keys_complete(d->keys, message->member);
        pst_assert(m->synced || d->unreported > 0);
        m->filling = false;
        d->unreported -= !m->synced;
        m->synced = true;
        d->counters.syncs++;
        repair_later(d, now_ns); /* who was to send a key may not have had it */
    }
}

static void take_tiers(struct member *m, const struct pst_heartbeat *message)
{
    for (uint32_t i = 0; i < PST_POOL_TIERS; i++) {
        m->tiers[i].capacity_bytes = message->tiers[i].capacity_bytes;
        m->tiers[i].used_bytes = message->tiers[i].used_bytes;
    }
}

static int refuse(struct pst_directory *d, int r)
{
    pst_assert(r == -EALREADY || r == -EINVAL || r == -ESTALE);
    d->counters.heartbeats_past += r == -EALREADY;
    d->counters.heartbeats_bad += r == -EINVAL;
    d->counters.heartbeats_stale += r == -ESTALE;
    return r;
}

/* What it wants is left as it is: most answers want nothing. */
static void begin_answer(const struct pst_directory *d, const struct member *m,
                         struct pst_heartbeat_answer *answer)
{
    pst_assert(m->lease_version <= d->draft->version);
    pst_assert(m->epoch > 0);
    answer->sequence_next = m->sequence_next;
    answer->sync = false;
    answer->lease_ms = 0;
    answer->lease_version = m->lease_version;
    answer->version = d->map->version;
    answer->term = d->map->term;
    answer->repair = repair_time(d);
    answer->want_count = 0;
}

int pst_directory_heartbeat(struct pst_directory *d, const struct pst_heartbeat *message, uint64_t now_ns,
                            struct pst_heartbeat_answer *answer)
{
    struct member *m = member_of(d, message->member, message->epoch);
    int r;

    members_wake(d, now_ns);
    if (!m)
        return refuse(d, -ESTALE);
    begin_answer(d, m, answer);
    r = heartbeat_is_good(m, message) ? in_order(d, m, message) : -EINVAL;
    if (r == -EALREADY || r == -EINVAL)
        return refuse(d, r);
    m->heard_ns = now_ns;
    if (!m->heard && m->before_ns) /* the one before has granted it none since: it has heard of this one */
        m->before_ns = pst_deadline_ns(now_ns, d->lease_before_ms);
    m->heard = true;
    if (r == 0) {
        take_events(d, m, message, now_ns);
        d->counters.heartbeats++;
    } else {
        d->counters.gaps++;
    }
    take_tiers(m, message);
    d->copies_wanted |= message->flags & PST_HEARTBEAT_COPIES;
    answer->sequence_next = m->sequence_next;
    answer->repair = repair_time(d);
    answer->sync = r < 0;
    if (d->follows)
        return r;
    if (d->draft->members[message->member].kept_epoch)
        directory_draft(d)->members[message->member].kept_epoch = 0;
    if (m->lease_version <= d->map->version)
        answer->lease_ms = d->settings.lease_ms;
    copies_wanted(d, message->member, now_ns, answer);
    balance_wanted(d, message->member, now_ns, answer);
    pst_assert(answer->want_count <= PST_WANTS_MAX);
    return r;
}
