/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c: who is told of a shard's changes. Waits lie in a table by their key's hash, watches in a list. */
#include "store/link_priv.h"
#include "store/shard_priv.h"
#include "store/watch.h"

enum { BUCKETS = 256 };

#define LISTENERS_MAGIC 0x6c697374u
#define WATCH_MAGIC     0x77617463u

struct pst_listeners {
    uint32_t magic;
    struct pst_list ready;
    struct pst_list watches;
    struct pst_list buckets[BUCKETS];
};

struct pst_watch {
    uint32_t magic;
    struct pst_list link;
    struct pst_shard *shard;
    struct pst_wait *wait;
    bool moves;
    bool (*tells)(void *ctx, struct pst_bytes key); /* NULL: of all */
    void *ctx;
    uint64_t missed;     /* pushed out before they were read */
    uint64_t head, tail; /* bytes ever read and written; their places are these modulo the ring's size */
    struct pst_bytes prefix;
    uint8_t ring[PST_WATCH_RING_BYTES];
    uint8_t prefix_bytes[];
};

int pst_listeners_open(struct pst_shard *s)
{
    struct pst_listeners *l = calloc(1, sizeof(*l));

    pst_assert(!s->listeners);
    if (!l)
        return -ENOMEM;
    l->magic = LISTENERS_MAGIC;
    pst_list_init(&l->ready);
    pst_list_init(&l->watches);
    for (int i = 0; i < BUCKETS; i++)
        pst_list_init(&l->buckets[i]);
    s->listeners = l;
    return 0;
}

void pst_listeners_close(struct pst_shard *s)
{
    struct pst_listeners *l = s->listeners;

    if (!l)
        return;
    while (!pst_list_empty(&l->watches))
        pst_watch_close(pst_list_first(&l->watches, struct pst_watch, link));
    pst_assert(l->magic == LISTENERS_MAGIC);
    pst_assert(s->stat_later.watches == 0);
    free(l);
    s->listeners = NULL;
}

/* ---- waits ---- */

static void wait_make_ready(struct pst_shard *s, struct pst_wait *wait)
{
    if (wait->watch) {
        pst_assert(wait->watch->wait == wait);
        wait->watch->wait = NULL;
        wait->watch = NULL;
    } else {
        pst_assert(s->listener_count > 0);
        pst_assert(s->stat_later.waits > 0);
        s->listener_count--;
        s->stat_later.waits--;
    }
    pst_list_remove(&wait->link);
    pst_list_push_back(&s->listeners->ready, &wait->link);
    wait->key = (struct pst_bytes){NULL, 0};
    s->ready_count++;
}

void pst_shard_wait(struct pst_shard *s, const struct pst_lookup *lookup, struct pst_wait *wait)
{
    *wait = (struct pst_wait){.key = lookup->key, .hash = lookup->hash};
    pst_assert(lookup->key.len > 0);
    pst_list_push_back(&s->listeners->buckets[lookup->hash % BUCKETS], &wait->link);
    s->listener_count++;
    s->stat_later.waits++;
}

void pst_watch_wait(struct pst_watch *watch, struct pst_wait *wait)
{
    pst_assert(watch->magic == WATCH_MAGIC);
    pst_assert(!watch->wait);
    *wait = (struct pst_wait){.watch = watch};
    pst_list_init(&wait->link);
    watch->wait = wait;
    if (pst_watch_pending(watch))
        wait_make_ready(watch->shard, wait);
}

void pst_shard_unwait(struct pst_shard *s, struct pst_wait *wait)
{
    if (!wait->watch && !wait->key.len) { /* ready, or taken already */
        pst_assert(pst_list_empty(&wait->link) || s->ready_count > 0);
        s->ready_count -= !pst_list_empty(&wait->link);
        pst_list_remove(&wait->link);
        return;
    }
    wait_make_ready(s, wait);
    pst_list_remove(&wait->link);
    s->ready_count--;
}

struct pst_wait *pst_shard_ready(struct pst_shard *s)
{
    struct pst_wait *wait;

    if (!s->ready_count)
        return NULL;
    wait = pst_list_first(&s->listeners->ready, struct pst_wait, link);
    pst_assert(!pst_list_empty(&s->listeners->ready));
    pst_assert(!wait->watch);
    pst_list_remove(&wait->link);
    s->ready_count--;
    return wait;
}

bool pst_shard_has_ready(const struct pst_shard *s)
{
    return s->ready_count > 0;
}

static void tell_waits(struct pst_shard *s, const struct pst_record *r)
{
    struct pst_bytes key = pst_record_key(r);
    uint64_t hash = pst_shard_lookup(s, key).hash;

    pst_assert(s->stat_later.waits <= s->listener_count);
    pst_list_each_safe (it, &s->listeners->buckets[hash % BUCKETS]) {
        struct pst_wait *wait = pst_list_entry(it, struct pst_wait, link);

        if (wait->hash == hash && pst_bytes_equal(wait->key, key))
            wait_make_ready(s, wait);
    }
}

/* ---- watches ---- */

int pst_watch_open(struct pst_shard *s, struct pst_bytes prefix, bool moves, struct pst_watch **out)
{
    struct pst_watch *watch = malloc(sizeof(*watch) + prefix.len);

    pst_assert(s->listeners && s->listeners->magic == LISTENERS_MAGIC);
    if (!watch)
        return -ENOMEM;
    watch->magic = WATCH_MAGIC;
    watch->shard = s;
    watch->wait = NULL;
    watch->moves = moves;
    watch->tells = NULL;
    watch->missed = watch->head = watch->tail = 0;
    watch->prefix = (struct pst_bytes){watch->prefix_bytes, prefix.len};
    if (prefix.len)
        memcpy(watch->prefix_bytes, prefix.data, prefix.len);
    pst_list_push_back(&s->listeners->watches, &watch->link);
    s->listener_count++;
    s->stat_later.watches++;
    *out = watch;
    return 0;
}

void pst_watch_limit(struct pst_watch *watch, bool (*tells)(void *ctx, struct pst_bytes key), void *ctx)
{
    pst_assert(watch->magic == WATCH_MAGIC);
    pst_assert(tells);
    pst_assert(watch->head == watch->tail); /* it has told nothing yet */
    watch->tells = tells;
    watch->ctx = ctx;
}

struct pst_watch *pst_watch_close(struct pst_watch *watch)
{
    struct pst_shard *s;

    if (!watch)
        return NULL;
    pst_assert(watch->magic == WATCH_MAGIC);
    s = watch->shard;
    if (watch->wait)
        wait_make_ready(s, watch->wait);
    pst_assert(s->listener_count > 0);
    pst_assert(s->stat_later.watches > 0);
    pst_list_remove(&watch->link);
    s->listener_count--;
    s->stat_later.watches--;
    free(watch);
    return NULL;
}

bool pst_watch_pending(const struct pst_watch *watch)
{
    pst_assert(watch->head <= watch->tail);
    return watch->missed || watch->head < watch->tail;
}

bool pst_watch_free(const struct pst_watch *watch)
{
    pst_assert(watch->magic == WATCH_MAGIC);
    return !watch->wait;
}

static void ring_copy_in(struct pst_watch *watch, const void *from, size_t len)
{
    size_t at = watch->tail % PST_WATCH_RING_BYTES, first = pst_min(len, PST_WATCH_RING_BYTES - at);

    pst_assert(watch->tail - watch->head + len <= PST_WATCH_RING_BYTES);
    memcpy(watch->ring + at, from, first);
    memcpy(watch->ring, (const uint8_t *)from + first, len - first);
    watch->tail += len;
}

/* The bytes from @offset behind the head. */
static void ring_copy_out(const struct pst_watch *watch, size_t offset, void *to, size_t len)
{
    size_t at = (watch->head + offset) % PST_WATCH_RING_BYTES,
           first = pst_min(len, PST_WATCH_RING_BYTES - at);

    pst_assert(offset + len <= watch->tail - watch->head);
    memcpy(to, watch->ring + at, first);
    memcpy((uint8_t *)to + first, watch->ring, len - first);
}

static size_t oldest_bytes(const struct pst_watch *watch)
{
    struct pst_wire_change oldest;

    pst_assert(watch->tail - watch->head >= sizeof(oldest));
    ring_copy_out(watch, 0, &oldest, sizeof(oldest));
    pst_assert(sizeof(oldest) + oldest.key_bytes <= watch->tail - watch->head);
    return sizeof(oldest) + oldest.key_bytes;
}

static void watch_append(struct pst_watch *watch, const struct pst_wire_change *change, struct pst_bytes key)
{
    size_t len = sizeof(*change) + key.len;

    pst_assert(len <= PST_WATCH_RING_BYTES);
    while (PST_WATCH_RING_BYTES - (watch->tail - watch->head) < len) {
        watch->head += oldest_bytes(watch);
        watch->missed++;
    }
    ring_copy_in(watch, change, sizeof(*change));
    ring_copy_in(watch, key.data, key.len);
    if (watch->wait)
        wait_make_ready(watch->shard, watch->wait);
    pst_assert(watch->tail - watch->head <= PST_WATCH_RING_BYTES);
}

int64_t pst_watch_read(struct pst_watch *watch, void *buf, size_t room)
{
    const struct pst_wire_change missed = {.what = PST_WIRE_CHANGE_MISSED, .value_bytes = watch->missed};
    size_t at = 0;

    pst_assert(watch->magic == WATCH_MAGIC);
    if (watch->missed && room >= sizeof(missed)) { /* they were older than what is left */
        memcpy(buf, &missed, sizeof(missed));
        at = sizeof(missed);
        watch->missed = 0;
    }
    while (!watch->missed && watch->head < watch->tail) {
        size_t len = oldest_bytes(watch);

        if (room - at < len)
            break;
        ring_copy_out(watch, 0, (uint8_t *)buf + at, len);
        watch->head += len;
        at += len;
    }
    pst_assert(at <= room);
    return at || !pst_watch_pending(watch) ? (int64_t)at : -ENOBUFS;
}

/* ---- changes ---- */

void pst_shard_tell(struct pst_shard *s, const struct pst_record *r, enum pst_wire_what what)
{
    struct pst_listeners *l = s->listeners;
    struct pst_bytes key = pst_record_key(r);
    const struct pst_wire_change change = {.generation = r->generation,
                                           .value_bytes = r->value_bytes,
                                           .key_bytes = r->key_bytes,
                                           .what = (uint8_t)what,
                                           .away = (uint8_t)pst_record_where(r)};

    pst_assert(l && l->magic == LISTENERS_MAGIC);
    if (what == PST_WIRE_CHANGE_PUT && s->stat_later.waits)
        tell_waits(s, r);
    pst_list_each (it, &l->watches) {
        struct pst_watch *watch = pst_list_entry(it, struct pst_watch, link);

        if ((watch->moves || what != PST_WIRE_CHANGE_MOVED) && pst_bytes_begin(key, watch->prefix) &&
            (!watch->tells || watch->tells(watch->ctx, key)))
            watch_append(watch, &change, key);
    }
}
