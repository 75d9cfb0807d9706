/* SPDX-License-Identifier: Apache-2.0 */
/* client.c: what users ask for. Each has one request underway and remembers what anyone had been told when it
 * began: an answer must not be older. */
#include "sim.h"

enum { PATIENCE_MS = 400 };

static struct message *ask(struct sim *s, int number, enum kind kind, int to)
{
    struct client *c = &s->clients[number];
    struct message *m = message_new(kind, -2 - number, to);

    c->kind = kind;
    c->since_ns = s->now_ns;
    m->request = ++c->request;
    return m;
}

static void ask_home(struct sim *s, int number, enum kind kind)
{
    struct client *c = &s->clients[number];
    uint32_t used = (uint32_t)draw(s, USED);
    const struct pst_map_partition *partition = &s->current->map->partitions[partition_of_used(used)];
    int to = (int)draw(s, s->node_count); /* whoever may still believe that it is primary */
    struct message *m;

    if (partition->replica_count > 0 && draw(s, 4) > 0)
        to = node_of_member(s, s->current->map, partition->replicas[0]);
    m = ask(s, number, kind, to);
    m->home.used = c->used = used;
    m->home.key = c->key = (uint32_t)draw(s, PARTITION_KEYS);
    c->floor = s->floors[used][c->key];
    c->losses = s->losses[used];
    send(s, m);
}

static void ask_route(struct sim *s, int number, enum kind kind)
{
    struct message *m = ask(s, number, kind, MASTER);

    m->any.key = (uint32_t)draw(s, s->key_count);
    m->to = share_who(s, m->any.key);
    m->any.put = (struct pst_put){.key = key_of(m->any.key),
                                  .bytes = KEY_BYTES,
                                  .replicas = 1 + (uint32_t)draw(s, 3),
                                  .evictable = true};
    send(s, m);
}

static void begin(struct sim *s, int number)
{
    uint64_t dice = draw(s, 100);

    if (!s->current || s->now_ns + 5000 * MS > s->end_ns)
        return;
    if (dice < 40)
        ask_home(s, number, ASK_READ);
    else if (dice < 70)
        ask_home(s, number, ASK_WRITE);
    else if (s->now_ns < s->quiet_ns)
        ask_route(s, number, dice < 90 ? TO_ROUTE_PUT : TO_ROUTE_GET);
}

static void store_there(struct sim *s, int number, const struct message *m)
{
    const struct pst_places *places = &m->any.route.places;

    if (m->any.route.status != PST_ROUTE_TO || !m->snapshot)
        return;
    for (uint32_t i = 0; i < places->count; i++) {
        int to = node_of_member(s, m->snapshot->map, places->items[i].member);
        struct message *store;

        if (to < 0 || draw(s, 10) == 0) /* clients may die, too */
            continue;
        store = message_new(ASK_STORE, -2 - number, to);
        store->any.key = m->any.key;
        send(s, store);
    }
}

/* One that it cannot reach, or so it says. */
static void complain(struct sim *s, int number, const struct message *m)
{
    const struct pst_place *place = &m->any.route.places.items[0];
    struct message *complaint;

    if (m->any.route.places.count == 0 || !m->snapshot || draw(s, 30) > 0)
        return;
    complaint = message_new(TO_SUSPECT, -2 - number, m->from);
    complaint->member.number = place->member;
    complaint->member.epoch = m->snapshot->map->members[place->member].epoch;
    send(s, complaint);
}

static void judge(struct sim *s, const struct client *c, const struct message *m)
{
    uint64_t number = m->home.values[0].number, *floor = &s->floors[c->used][c->key];

    s->checked++;
    if (c->losses != s->losses[c->used])
        return; /* the partition was given up meanwhile */
    if (number < c->floor || (m->kind == TOLD_WRITE && number == c->floor))
        violation(s, "partition %u key %u: a %s is told %llx by node %d, and %llx was told before", c->used,
                  c->key, m->kind == TOLD_WRITE ? "write" : "read", (unsigned long long)number, m->from,
                  (unsigned long long)c->floor);
    if (was_refused(s, m->home.values[0]))
        violation(s, "partition %u key %u: node %d tells %llx, a write that was refused", c->used, c->key,
                  m->from, (unsigned long long)number);
    if (number > 0 && m->home.values[0].epoch < s->current->map->partitions[partition_of_used(c->used)].base)
        violation(s, "partition %u key %u: node %d tells %llx, of before the partition was dealt out anew",
                  c->used, c->key, m->from, (unsigned long long)number);
    if (number == 0 && m->home.told == TOLD_MISS && c->losses > 0)
        violation(s, "partition %u key %u: a miss, and values were lost", c->used, c->key);
    *floor = pst_max(*floor, number);
    if (is_durable(m->home.values[0]))
        s->durable[c->used][c->key] = pst_max(s->durable[c->used][c->key], number);
    s->counts.writes += m->kind == TOLD_WRITE;
    s->counts.reads += m->kind == TOLD_READ;
}

void client_take(struct sim *s, int number, struct message *m)
{
    struct client *c = &s->clients[number];

    if (m->kind == TIMER) {
        timer(s, -2 - number, 0, 20 * MS + draw(s, 80 * MS));
        if (!c->kind || s->now_ns >= c->since_ns + PATIENCE_MS * MS)
            begin(s, number);
        return;
    }
    if (m->kind == TOLD_REFUSED)
        s->counts.refused++;
    if (m->request != c->request)
        return;
    c->request++;
    c->kind = 0;
    if (m->kind == TOLD_WRITE || m->kind == TOLD_READ)
        judge(s, c, m);
    else if (m->kind == IS_ROUTED)
        store_there(s, number, m);
    else if (m->kind == IS_FOUND)
        complain(s, number, m);
}
