/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home.c: a node's part in the partitions that clients use. A primary that begins an epoch gives its copies
 * what it has; then it serves. A write is told to all copies, and exposed and acknowledged when all have it
 * and the lease still holds. Who is to join gets the state while no write is underway, counts like a copy
 * from then on, and only then is the directory asked.
 */
#include "sim.h"

const uint64_t home_quiet_ms = 90000;

uint32_t partition_of_used(uint32_t used)
{
    return used * (PST_PARTITIONS / USED) + 5;
}

static const struct pst_map_partition *map_partition(const struct node *n, uint32_t used)
{
    return &node_map(n)->partitions[partition_of_used(used)];
}

static bool is_primary(const struct node *n, uint32_t used)
{
    const struct pst_map *map = node_map(n);

    return map && n->epoch && map_partition(n, used)->state == PST_MAP_SERVED &&
           map_partition(n, used)->replicas[0] == n->member && map->members[n->member].epoch == n->epoch;
}

bool home_serves(const struct sim *s, const struct node *n, uint32_t used)
{
    const struct pst_map *map = node_map(n);

    if (!n->up || !n->epoch || !map || s->now_ns < n->frozen_until_ns)
        return false;
    if (n->homes[used].leaving && s->plant != PLANT_two_minds)
        return false;
    if (s->plant == PLANT_no_lease)
        return is_primary(n, used);
    return pst_lease_serve(&n->lease, map, n->member, n->epoch, partition_of_used(used), node_now(s, n)) ==
           PST_SERVE_YES;
}

static void take_value(struct home *home, uint32_t key, struct value value)
{
    if (value.number > home->values[key].number)
        home->values[key] = value;
    if (is_durable(value) && value.number > home->disk[key].number)
        home->disk[key] = value;
}

void home_crash(struct home *home, enum left left)
{
    struct home next = {.data_epoch = home->data_epoch, .counter = home->counter, .sparse = home->sparse};

    memcpy(next.disk, home->disk, sizeof(next.disk));
    memcpy(next.values, left == LEFT_ALL ? home->values : home->disk, sizeof(next.values));
    next.sparse |= left == LEFT_DISK;
    *home = left == LEFT_NOTHING ? (struct home){.data_epoch = 0} : next;
}

void home_start(struct sim *s, int number)
{
    (void)s;
    (void)number;
}

void home_stop(struct sim *s, int number)
{
    (void)s;
    (void)number;
}

void home_turn(struct sim *s, int number)
{
    (void)s;
    (void)number;
}

bool home_promises(const struct sim *s, int number)
{
    (void)s;
    (void)number;
    return true;
}

enum left home_left(const struct sim *s, int number, enum left left)
{
    (void)s;
    (void)number;
    return left;
}

void home_leave(struct node *n)
{
    for (uint32_t i = 0; i < USED; i++) {
        n->homes[i].led_epoch = 0;
        memset(n->homes[i].pending, 0, sizeof(n->homes[i].pending));
    }
}

/* It has begun the epoch of its pool map, and its copies have what it has. */
static bool is_ready(const struct node *n, uint32_t used)
{
    const struct home *home = &n->homes[used];

    return home->led_epoch == map_partition(n, used)->epoch &&
           !(home->state_busy && home->joining == PST_MAP_NONE);
}

void home_follow_map(struct sim *s, struct node *n)
{
    (void)s;
    for (uint32_t i = 0; i < USED; i++) {
        const struct pst_map_partition *partition = map_partition(n, i);
        struct home *home = &n->homes[i];

        if (home->led_epoch != partition->epoch) {
            home->led_epoch = 0;
            home->leaving = false;
            memset(home->pending, 0, sizeof(home->pending));
        }
    }
}

/* ---- messages to other nodes ---- */

static void tell_member(struct sim *s, int number, uint16_t member, enum kind kind, uint32_t used,
                        const struct message *like)
{
    struct node *n = &s->nodes[number];
    const struct pst_map *map = node_map(n);
    struct message *m;
    int to = node_of_member(s, map, member);

    if (to < 0)
        return;
    m = message_new(kind, number, to);
    m->home = like->home;
    m->session = map->members[member].epoch;
    m->home.used = used;
    m->home.member = n->member;
    m->home.epoch = map_partition(n, used)->epoch;
    send(s, m);
}

static void tell_state(struct sim *s, int number, uint32_t used)
{
    struct home *home = &s->nodes[number].homes[used];
    struct message like = {.home = {.attempt = home->attempt}};

    memcpy(like.home.values, home->values, sizeof(home->values));
    memcpy(like.home.disk, home->disk, sizeof(home->disk));
    for (uint32_t i = 0; i < home->waiting_count; i++)
        tell_member(s, number, home->waiting[i], NODE_STATE, used, &like);
}

static void tell_write(struct sim *s, int number, uint32_t used, uint32_t key)
{
    struct pending *pending = &s->nodes[number].homes[used].pending[key];
    struct message like = {.home = {.key = key, .values = {pending->value}}};

    for (uint32_t i = 0; i < pending->waiting_count; i++)
        tell_member(s, number, pending->waiting[i], NODE_WRITE, used, &like);
}

static void ask_change(struct sim *s, int number, uint32_t used, enum pst_copy_change change, uint16_t copy)
{
    struct node *n = &s->nodes[number];
    struct message *m = message_new(TO_CHANGE, number, MASTER);

    m->session = n->process;
    m->change =
        (struct pst_copy_request){.member = n->member,
                                  .epoch = n->epoch,
                                  .change = change,
                                  .partition = (uint16_t)partition_of_used(used),
                                  .partition_epoch = map_partition(n, used)->epoch,
                                  .copy = copy,
                                  .copy_epoch = change == PST_COPY_JOIN ? n->homes[used].joining_epoch
                                                                        : node_map(n)->members[copy].epoch};
    if (change == PST_COPY_DROP)
        s->drop_ns = s->now_ns;
    send(s, m);
}

static void strike(uint16_t *waiting, uint32_t *count, uint16_t member)
{
    for (uint32_t i = 0; i < *count; i++)
        if (waiting[i] == member)
            waiting[i--] = waiting[--*count];
}

/* ---- what is dealt out anew ---- */

static void forget(struct home *home)
{
    memset(home->values, 0, sizeof(home->values));
    memset(home->disk, 0, sizeof(home->disk));
    home->sparse = false;
}

/* Of all partitions that are dealt to the node anew it drops what it has of before, and asks for them. */
void home_take_up(struct sim *s, int number)
{
    struct node *n = &s->nodes[number];
    const struct pst_map *map = node_map(n);

    for (uint32_t i = 0; i < PST_PARTITIONS && n->epoch; i++) {
        const struct pst_map_partition *partition = &map->partitions[i];
        uint32_t used = i / (PST_PARTITIONS / USED);
        struct message *m;

        if (!pst_map_partition_dealt(partition) || partition->replicas[0] != n->member ||
            map->members[n->member].epoch != n->epoch)
            continue;
        if (partition_of_used(used) == i && s->plant != PLANT_old_deal)
            forget(&n->homes[used]);
        m = message_new(TO_CHANGE, number, MASTER);
        m->session = n->process;
        m->change = (struct pst_copy_request){.member = n->member,
                                              .epoch = n->epoch,
                                              .change = PST_COPY_TAKE,
                                              .partition = (uint16_t)i,
                                              .partition_epoch = partition->epoch,
                                              .copy = n->member,
                                              .copy_epoch = n->epoch};
        send(s, m);
    }
}

/* ---- a primary ---- */

static void begin_epoch(struct sim *s, int number, uint32_t used)
{
    struct node *n = &s->nodes[number];
    const struct pst_map_partition *partition = map_partition(n, used);
    struct home *home = &n->homes[used];

    home->led_epoch = home->data_epoch = partition->epoch;
    home->attempt++;
    home->joining = PST_MAP_NONE;
    home->joined = home->leaving = false;
    home->since_ns = s->now_ns;
    memset(home->pending, 0, sizeof(home->pending));
    home->waiting_count = s->plant == PLANT_empty_join ? 0 : partition->replica_count - 1u;
    memcpy(home->waiting, partition->replicas + 1, home->waiting_count * sizeof(uint16_t));
    home->state_busy = home->waiting_count > 0;
    tell_state(s, number, used);
}

static void expose(struct sim *s, int number, uint32_t used, uint32_t key)
{
    struct node *n = &s->nodes[number];
    struct pending *pending = &n->homes[used].pending[key];
    struct message *m;

    if (!home_serves(s, n, used))
        return;
    take_value(&n->homes[used], key, pending->value);
    m = message_new(TOLD_WRITE, number, pending->client);
    m->request = pending->request;
    m->home.values[0] = pending->value;
    pending->busy = false;
    send(s, m);
}

static void press_write(struct sim *s, int number, uint32_t used, uint32_t key)
{
    struct pending *pending = &s->nodes[number].homes[used].pending[key];

    if (!pending->busy)
        return;
    if (pending->waiting_count == 0) {
        expose(s, number, used, key);
        return;
    }
    tell_write(s, number, used, key);
    if (s->now_ns >= pending->since_ns + 1000 * MS)
        ask_change(s, number, used, PST_COPY_DROP, pending->waiting[0]);
}

static void begin_to_leave(struct sim *s, struct home *home, uint16_t heir)
{
    home->leaving = true;
    home->leaving_ns = s->now_ns;
    home->heir = heir;
    s->counts.hand_overs++;
}

/* Hands the partition over now and then. When nothing comes of it, a new epoch without the heir ends it. */
static void hand_over(struct sim *s, int number, uint32_t used)
{
    struct node *n = &s->nodes[number];
    const struct pst_map_partition *partition = map_partition(n, used);
    struct home *home = &n->homes[used];

    if (home->leaving) {
        ask_change(s, number, used, PST_COPY_LEAD, home->heir);
        if (s->now_ns >= home->leaving_ns + 1000 * MS)
            ask_change(s, number, used, PST_COPY_DROP, home->heir);
        return;
    }
    if (partition->replica_count < 2 || home->joining != PST_MAP_NONE || draw(s, 1000) > 0 ||
        s->now_ns >= s->quiet_ns)
        return;
    for (uint32_t key = 0; key < PARTITION_KEYS; key++)
        if (home->pending[key].busy)
            return;
    begin_to_leave(s, home, partition->replicas[1 + draw(s, partition->replica_count - 1u)]);
}

void home_step(struct sim *s, int number, uint32_t used)
{
    struct node *n = &s->nodes[number];
    struct home *home = &n->homes[used];

    if (!is_primary(n, used))
        return;
    if (home->led_epoch != map_partition(n, used)->epoch) {
        begin_epoch(s, number, used);
        return;
    }
    if (home->state_busy) {
        tell_state(s, number, used);
        if (s->now_ns < home->since_ns + 1000 * MS)
            return;
        if (home->joining == PST_MAP_NONE) {
            ask_change(s, number, used, PST_COPY_DROP, home->waiting[0]);
        } else { /* the directory has not been asked yet */
            home->joining = PST_MAP_NONE;
            home->state_busy = false;
        }
        return;
    }
    if (home->joined && s->now_ns >= home->since_ns + 500 * MS) {
        home->since_ns = s->now_ns;
        ask_change(s, number, used, PST_COPY_JOIN, home->joining);
    }
    for (uint32_t key = 0; key < PARTITION_KEYS; key++)
        press_write(s, number, used, key);
    hand_over(s, number, used);
}

void home_changed(struct sim *s, int number, const struct message *m)
{
    const struct node *n = &s->nodes[number];
    uint32_t used = m->change.partition / (PST_PARTITIONS / USED);

    if (!n->epoch)
        return;
    node_fetch(s, number);
    /* Who was to join is another one now: it never will, and a new epoch makes sure of it. */
    if (m->result == -ESTALE && m->change.change == PST_COPY_JOIN &&
        m->change.partition == partition_of_used(used) && is_primary(n, used) && n->homes[used].joined &&
        n->homes[used].led_epoch == m->change.partition_epoch)
        ask_change(s, number, used, PST_COPY_DROP, m->change.copy);
}

/* ---- joins ---- */

static void join_unused(struct sim *s, int number, const struct pst_want *want)
{
    struct node *n = &s->nodes[number];
    struct message *m;

    if (s->now_ns < s->quiet_ns && draw(s, 4) > 0) /* most stay as they are: a run is not all about them */
        return;
    m = message_new(TO_CHANGE, number, MASTER);
    m->session = n->process;
    m->change = (struct pst_copy_request){.member = n->member,
                                          .epoch = n->epoch,
                                          .change = want->leads ? PST_COPY_LEAD : PST_COPY_JOIN,
                                          .partition = want->partition,
                                          .partition_epoch = want->partition_epoch,
                                          .copy = want->member,
                                          .copy_epoch = want->member_epoch};
    send(s, m);
}

static void wanted(struct sim *s, int number, const struct pst_want *want)
{
    struct node *n = &s->nodes[number];
    const struct pst_map *map = node_map(n);
    uint32_t used = want->partition / (PST_PARTITIONS / USED);
    struct home *home = &n->homes[used];

    if (partition_of_used(used) != want->partition) {
        join_unused(s, number, want);
        return;
    }
    if (!is_primary(n, used) || !is_ready(n, used) || home->joining != PST_MAP_NONE || home->leaving ||
        home->led_epoch != want->partition_epoch || map->members[want->member].epoch != want->member_epoch)
        return;
    for (uint32_t key = 0; key < PARTITION_KEYS; key++)
        if (home->pending[key].busy)
            return;
    if (want->leads) {
        begin_to_leave(s, home, want->member);
        return;
    }
    home->joining = want->member;
    home->joining_epoch = want->member_epoch;
    home->joined = s->plant == PLANT_empty_join;
    home->attempt++;
    home->state_busy = !home->joined;
    home->since_ns = s->now_ns;
    home->waiting[0] = want->member;
    home->waiting_count = 1;
    if (home->joined)
        ask_change(s, number, used, PST_COPY_JOIN, home->joining);
    else
        tell_state(s, number, used);
}

void home_wanted(struct sim *s, int number, const struct pst_heartbeat_answer *answer)
{
    for (uint32_t i = 0; i < answer->want_count; i++)
        wanted(s, number, &answer->wants[i]);
}

static void take_state_taken(struct sim *s, int number, const struct message *m)
{
    struct node *n = &s->nodes[number];
    struct home *home = &n->homes[m->home.used];

    if (!is_primary(n, m->home.used) || home->led_epoch != m->home.epoch ||
        home->attempt != m->home.attempt || !home->state_busy)
        return;
    strike(home->waiting, &home->waiting_count, m->home.member);
    if (home->waiting_count > 0)
        return;
    home->state_busy = false;
    if (home->joining == PST_MAP_NONE)
        return;
    home->joined = true;
    home->since_ns = s->now_ns;
    ask_change(s, number, m->home.used, PST_COPY_JOIN, home->joining);
}

/* ---- a copy ---- */

/* Whether a message is from the primary of the epoch that we know of. */
static bool is_from_primary(struct sim *s, int number, const struct message *m)
{
    struct node *n = &s->nodes[number];
    const struct pst_map *map = node_map(n);
    enum pst_epoch epoch;

    if (!map || m->session != n->epoch)
        return false;
    epoch = pst_lease_epoch(map, partition_of_used(m->home.used), m->home.epoch);
    if (epoch == PST_EPOCH_NEW)
        node_fetch(s, number);
    return epoch == PST_EPOCH_SAME && map_partition(n, m->home.used)->replicas[0] == m->home.member;
}

static void take_state(struct sim *s, int number, const struct message *m)
{
    struct home *home = &s->nodes[number].homes[m->home.used];

    if (!is_from_primary(s, number, m) ||
        (home->taken_epoch == m->home.epoch && home->taken_attempt > m->home.attempt))
        return;
    if (home->taken_epoch != m->home.epoch || home->taken_attempt != m->home.attempt) {
        memcpy(home->values, m->home.values, sizeof(home->values));
        if (s->plant != PLANT_memory_join)
            memcpy(home->disk, m->home.disk, sizeof(home->disk));
        home->sparse = false;
        home->data_epoch = home->taken_epoch = m->home.epoch;
        home->taken_attempt = m->home.attempt;
    }
    tell_member(s, number, m->home.member, NODE_STATE_TAKEN, m->home.used, m);
}

static void take_write(struct sim *s, int number, const struct message *m)
{
    struct home *home = &s->nodes[number].homes[m->home.used];

    if (!is_from_primary(s, number, m))
        return;
    if (s->plant != PLANT_empty_join && home->taken_epoch != m->home.epoch)
        return; /* a write to what it does not have */
    take_value(home, m->home.key, m->home.values[0]);
    tell_member(s, number, m->home.member, NODE_WRITTEN, m->home.used, m);
}

static void take_written(struct sim *s, int number, const struct message *m)
{
    struct node *n = &s->nodes[number];
    struct pending *pending = &n->homes[m->home.used].pending[m->home.key];

    if (!is_primary(n, m->home.used) || !pending->busy || pending->value.number != m->home.values[0].number)
        return;
    strike(pending->waiting, &pending->waiting_count, m->home.member);
    if (pending->waiting_count == 0)
        expose(s, number, m->home.used, m->home.key);
}

/* ---- clients ---- */

static void ask_write(struct sim *s, int number, const struct message *m)
{
    struct node *n = &s->nodes[number];
    struct home *home = &n->homes[m->home.used];
    struct pending *pending = &home->pending[m->home.key];
    const struct pst_map_partition *partition;

    if (!home_serves(s, n, m->home.used) || !is_ready(n, m->home.used) || home->state_busy || pending->busy)
        return;
    partition = map_partition(n, m->home.used);
    *pending =
        (struct pending){.busy = true,
                         .client = m->from,
                         .request = m->request,
                         .value = {partition->epoch << 32 | ++home->counter, ++s->value_id, partition->epoch},
                         .since_ns = s->now_ns,
                         .waiting_count = partition->replica_count - 1u};
    memcpy(pending->waiting, partition->replicas + 1, pending->waiting_count * sizeof(uint16_t));
    if (home->joined)
        pending->waiting[pending->waiting_count++] = home->joining;
    tell_write(s, number, m->home.used, m->home.key);
    if (s->plant == PLANT_early_answer)
        pending->waiting_count = 0;
    press_write(s, number, m->home.used, m->home.key);
}

static void ask_read(struct sim *s, int number, const struct message *m)
{
    struct node *n = &s->nodes[number];
    struct message *told;

    if (!home_serves(s, n, m->home.used) || !is_ready(n, m->home.used))
        return;
    told = message_new(TOLD_READ, number, m->from);
    told->request = m->request;
    told->home.values[0] = n->homes[m->home.used].values[m->home.key];
    if (told->home.values[0].number == 0)
        told->home.told = map_partition(n, m->home.used)->lost ? TOLD_LOST : TOLD_MISS;
    send(s, told);
}

void home_take(struct sim *s, int number, struct message *m)
{
    switch (m->kind) {
    case NODE_STATE:
        take_state(s, number, m);
        break;
    case NODE_STATE_TAKEN:
        take_state_taken(s, number, m);
        break;
    case NODE_WRITE:
        take_write(s, number, m);
        break;
    case NODE_WRITTEN:
        take_written(s, number, m);
        break;
    case ASK_WRITE:
        ask_write(s, number, m);
        break;
    case ASK_READ:
        ask_read(s, number, m);
        break;
    default:
        pst_assert(false); /* a message for a node */
    }
}
