/* SPDX-License-Identifier: Apache-2.0 */
/* world.c: time, chance, the network, and a run from its beginning to its end. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- chance and words ---- */

uint64_t draw(struct sim *s, uint64_t limit)
{
    uint64_t x = s->dice += 0x9e3779b97f4a7c15;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (x ^ x >> 31) % limit;
}

bool chance(struct sim *s, uint32_t per_million)
{
    return draw(s, 1000000) < per_million;
}

static void __attribute__((format(printf, 3, 0)))
say(const struct sim *s, const char *what, const char *format, va_list arguments)
{
    char text[300];

    (void)vsnprintf(text, sizeof(text), format, arguments);
    printf("%s: seed %llu at %.3f s: %s\n", what, (unsigned long long)s->seed, (double)s->now_ns / 1e9, text);
}

void note(struct sim *s, const char *format, ...)
{
    va_list arguments;

    if (!s->trace)
        return;
    va_start(arguments, format);
    say(s, "note", format, arguments);
    va_end(arguments);
}

void violation(struct sim *s, const char *format, ...)
{
    va_list arguments;

    if (s->violations++ >= 5)
        return;
    va_start(arguments, format);
    say(s, "violation", format, arguments);
    va_end(arguments);
}

/* ---- messages ---- */

struct message *message_new(enum kind kind, int from, int to)
{
    struct message *m = calloc(1, sizeof(*m));

    pst_assert(m);
    m->refs = 1;
    m->kind = kind;
    m->from = from;
    m->to = to;
    return m;
}

struct snapshot *snapshot_ref(struct snapshot *snapshot)
{
    if (snapshot)
        snapshot->refs++;
    return snapshot;
}

void snapshot_drop(struct snapshot *snapshot)
{
    if (!snapshot || --snapshot->refs > 0)
        return;
    pst_map_close(snapshot->map);
    free(snapshot);
}

void message_drop(struct message *m)
{
    if (--m->refs > 0)
        return;
    snapshot_drop(m->snapshot);
    free(m->events);
    free(m->answer);
    free(m->changes);
    free(m->asked);
    free(m->keys);
    free(m->routes);
    free(m);
}

/* ---- what happens when: a heap by time, and among equals by order ---- */

struct due {
    uint64_t at_ns, order;
    struct message *message;
};

struct heap {
    struct due *items;
    size_t count, cap;
    uint64_t order;
};

static bool is_before(const struct due *a, const struct due *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void heap_push(struct heap *heap, uint64_t at_ns, struct message *m)
{
    struct due due = {at_ns, heap->order++, m};
    size_t at = heap->count++;

    if (heap->count > heap->cap) {
        heap->cap = heap->cap ? 2 * heap->cap : 1024;
        heap->items = realloc(heap->items, heap->cap * sizeof(due));
        pst_assert(heap->items);
    }
    for (; at > 0 && is_before(&due, &heap->items[(at - 1) / 2]); at = (at - 1) / 2)
        heap->items[at] = heap->items[(at - 1) / 2];
    heap->items[at] = due;
}

static struct due heap_pop(struct heap *heap)
{
    struct due first = heap->items[0], last = heap->items[--heap->count];
    size_t at = 0;

    for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && is_before(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (!is_before(&heap->items[child], &last))
            break;
        heap->items[at] = heap->items[child];
    }
    heap->items[at] = last;
    return first;
}

void send_after(struct sim *s, struct message *m, uint64_t ns)
{
    heap_push(s->heap, s->now_ns + ns, m);
}

void timer(struct sim *s, int who, uint64_t session, uint64_t ns)
{
    struct message *m = message_new(TIMER, who, who);

    m->session = session;
    send_after(s, m, ns);
}

/* Whether the network carries anything from one to the other at present. */
static bool is_cut(const struct sim *s, int from, int to)
{
    const struct node *a = from >= 0 ? &s->nodes[from] : NULL, *b = to >= 0 ? &s->nodes[to] : NULL;

    if (from == MASTER || to == MASTER || from <= SHARE_0 || to <= SHARE_0)
        return (a && s->now_ns < a->cut_until_ns) || (b && s->now_ns < b->cut_until_ns);
    return a && b && (s->now_ns < a->peer_cut_until_ns || s->now_ns < b->peer_cut_until_ns);
}

static uint64_t delay_ns(struct sim *s)
{
    if (s->now_ns >= s->quiet_ns || !chance(s, 30000))
        return MS / 10 + draw(s, 2 * MS);
    return draw(s, s->slow_ms * MS) + MS;
}

void send(struct sim *s, struct message *m)
{
    bool faults = s->now_ns < s->quiet_ns;

    if (is_cut(s, m->from, m->to) || (faults && chance(s, s->drop_per_million))) {
        message_drop(m);
        return;
    }
    if (faults && chance(s, s->double_per_million)) {
        m->refs++;
        send_after(s, m, delay_ns(s));
    }
    send_after(s, m, delay_ns(s));
}

/* ---- a run ---- */

static void digest(struct sim *s, const struct message *m)
{
    uint64_t words[] = {s->digest, s->now_ns, m->kind, (uint64_t)m->from, (uint64_t)m->to, s->violations};

    s->digest = pst_hash64(words, sizeof(words), 1);
    s->events++;
}

static void deliver(struct sim *s, struct message *m)
{
    struct node *n = m->to >= 0 ? &s->nodes[m->to] : NULL;
    uint64_t frozen_until_ns = m->to == MASTER    ? s->master_frozen_until_ns
                               : m->to <= SHARE_0 ? s->shares[SHARE_0 - m->to].frozen_until_ns
                               : n && n->up       ? n->frozen_until_ns
                                                  : 0;

    if (s->now_ns < frozen_until_ns) {
        m->refs++;
        heap_push(s->heap, frozen_until_ns, m);
    } else if (n) {
        if (n->up)
            node_take(s, m->to, m);
    } else if (m->to == MASTER) {
        master_take(s, m);
    } else if (m->to <= SHARE_0) {
        share_take(s, (uint32_t)(SHARE_0 - m->to), m);
    } else {
        client_take(s, -2 - m->to, m);
    }
    digest(s, m);
    message_drop(m);
}

static void choose(struct sim *s, uint32_t nodes)
{
    s->node_count = nodes ? nodes : 3 + (uint32_t)draw(s, draw(s, 4) == 0 ? 60 : 8);
    s->host_count = s->node_count <= 4 ? s->node_count : (uint32_t)(3 + draw(s, s->node_count - 3));
    s->key_count = KEYS_MAX / 8 + (uint32_t)draw(s, KEYS_MAX * 7 / 8);
    s->gentle = draw(s, 2);
    s->replicas = s->gentle ? 2 + (uint32_t)draw(s, 2) : 1 + (uint32_t)draw(s, 3);
    s->drop_per_million = s->gentle ? 2000 : (uint32_t)draw(s, 60000);
    s->double_per_million = (uint32_t)draw(s, 50000);
    s->slow_ms = s->gentle ? 300 : 1 + draw(s, 8000);
    pst_directory_preset(&s->settings);
    s->settings.members_max = s->node_count + 4;
    s->settings.entries_max = 1 << 20;
    s->settings.reservations_max = 256;
    s->settings.nodes_min = pst_min(s->replicas, s->host_count);
    s->settings.incomplete_ms = draw(s, 30000);
    s->settings.repair_again_ms = 500;
    s->settings.balance_partitions = s->plant == PLANT_no_balance ? 0 : 256;
}

struct sim *sim_open(uint64_t seed, uint32_t nodes, uint32_t shares, uint64_t ms, enum plant plant)
{
    struct sim *s = calloc(1, sizeof(*s));

    pst_assert(s);
    s->heap = calloc(1, sizeof(*s->heap));
    s->seed = s->dice = seed;
    s->plant = plant;
    choose(s, nodes);
    s->share_count = shares;
    s->settings.directory_shards = shares;
    s->nodes = calloc(s->node_count, sizeof(*s->nodes));
    s->disk_cap = pst_map_bytes_max((uint32_t)s->settings.members_max);
    s->disk = calloc(1, s->disk_cap);
    s->disk_next = calloc(1, s->disk_cap);
    pst_assert(s->heap && s->nodes && s->disk && s->disk_next);
    s->quiet_ns = ms * MS;
    s->end_ns =
        s->quiet_ns +
        home_quiet_ms * MS; /* time for a partition to be given up and dealt out, and for full reports */
    master_start(s);
    for (uint32_t i = 1; i < s->share_count; i++)
        share_start(s, i);
    for (uint32_t i = 0; i < s->node_count; i++)
        node_start(s, (int)i);
    for (int i = 0; i < CLIENTS; i++)
        timer(s, -2 - i, 0, draw(s, 1000 * MS));
    return s;
}

void sim_run(struct sim *s)
{
    uint64_t check_ns = 0;

    while (s->heap->count > 0 && s->violations == 0) {
        struct due due = heap_pop(s->heap);

        pst_assert(due.at_ns >= s->now_ns);
        s->now_ns = due.at_ns;
        if (s->now_ns >= s->end_ns) {
            message_drop(due.message);
            break;
        }
        if (s->now_ns >= check_ns) {
            check_leases(s);
            if (check_ns / (1000 * MS) != s->now_ns / (1000 * MS))
                check_places(s);
            if (check_ns / (1000 * MS) != s->now_ns / (1000 * MS))
                check_none_refused(s);
            faults_step(s);
            check_ns = s->now_ns + 50 * MS;
        }
        deliver(s, due.message);
    }
    if (s->violations == 0)
        check_end(s);
}

void sim_close(struct sim *s)
{
    master_crash(s);
    while (s->heap->count > 0)
        message_drop(heap_pop(s->heap).message);
    for (uint32_t i = 0; i < s->node_count; i++) {
        home_stop(s, (int)i);
        node_close(&s->nodes[i]);
    }
    for (uint32_t i = 1; i < s->share_count; i++)
        share_close(s, i);
    free(s->refused);
    snapshot_drop(s->current);
    free(s->heap->items);
    free(s->heap);
    free(s->nodes);
    free(s->disk);
    free(s->disk_next);
    free(s);
}
