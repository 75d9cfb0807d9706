/* SPDX-License-Identifier: Apache-2.0 */
/* node.c: a node's process: its membership, its pool map and lease, and keys that may lie anywhere. */
#include "sim.h"

uint64_t node_now(const struct sim *s, const struct node *n)
{
    return n->clock_ns + (uint64_t)((double)(s->now_ns - n->clock_at_ns) * n->rate);
}

const struct pst_map *node_map(const struct node *n)
{
    return n->snapshot ? n->snapshot->map : NULL;
}

int node_of_member(const struct sim *s, const struct pst_map *map, uint16_t member)
{
    uint32_t number;

    if (!map->members[member].epoch)
        return INT32_MIN;
    memcpy(&number, map->members[member].id.bytes, sizeof(number));
    pst_assert(number >= 1 && number <= s->node_count);
    return (int)number - 1;
}

uint32_t share_of(uint32_t key, uint32_t share_count)
{
    struct pst_hash128 fingerprint = key_of(key);

    return pst_map_share_of(&fingerprint, share_count);
}

static uint32_t walk(void *ctx, bool again, struct pst_event *to, uint32_t room, bool *ended)
{
    struct telling *t = ctx;
    const struct node *n = t->node;
    uint32_t count = 0;

    if (again)
        t->walk_at = 0;
    for (; t->walk_at < KEYS_MAX && count < room; t->walk_at++)
        if (n->held[t->walk_at] && share_of(t->walk_at, n->share_count) == t->share)
            to[count++] = (struct pst_event){.key = key_of(t->walk_at),
                                             .generation = n->held[t->walk_at],
                                             .kind = PST_EVENT_ADD,
                                             .tier = PST_POOL_DRAM};
    *ended = t->walk_at == KEYS_MAX;
    return count;
}

static void open_tellings(struct node *n)
{
    for (uint32_t i = 0; i < n->share_count; i++) {
        struct telling *t = &n->tellings[i];
        int r;

        *t = (struct telling){.node = n, .share = i};
        r = pst_report_open(REPORT_EVENTS, MESSAGE_EVENTS, walk, t, &t->report);
        pst_assert(r == 0);
        pst_report_of_share(t->report, (uint16_t)i, (uint16_t)(n->share_count - 1));
    }
}

void node_start(struct sim *s, int number)
{
    struct node *n = &s->nodes[number];

    pst_assert(!n->up);
    n->share_count = s->share_count;
    open_tellings(n);
    n->up = true;
    n->process = n->start = draw(s, UINT64_MAX - 1) + 1;
    n->rate = s->plant == PLANT_slow_clock ? 0.5 : 0.95 + (double)draw(s, 100) / 1000;
    n->clock_ns = draw(s, 1000000) * MS;
    n->clock_at_ns = s->now_ns;
    timer(s, number, n->process, draw(s, 300 * MS));
    home_start(s, number);
}

/* What the process knew is gone, and of what it held all but what is @left. */
void node_crash(struct sim *s, int number, enum left left)
{
    static const char *const words[] = {"", ", its disk stays", ", its memory stays"};
    struct node *n = &s->nodes[number];

    left = home_left(s, number, left);
    note(s, "node %d crashes%s", number, words[left]);
    home_stop(s, number);
    node_close(n);
    n->up = false;
    n->snapshot = NULL;
    n->epoch = n->frozen_until_ns = 0;
    n->lease = (struct pst_lease){.until_ns = 0};
    for (uint32_t i = 0; i < USED; i++)
        home_crash(&n->homes[i], left);
    if (left == LEFT_ALL)
        return;
    n->kept_durable = left == LEFT_DISK || s->plant == PLANT_old_disk;
    n->kept_epoch = n->kept_durable ? n->kept_epoch : 0;
    for (uint32_t i = 0; i < KEYS_MAX; i++)
        s->holders[i] -= n->held[i] != 0;
    memset(n->held, 0, sizeof(n->held));
    n->held_count = 0;
}

void node_close(struct node *n)
{
    snapshot_drop(n->snapshot);
    for (uint32_t i = 0; i < n->share_count; i++)
        n->tellings[i].report = pst_report_close(n->tellings[i].report);
}

/* ---- keys anywhere ---- */

static void tell_key(struct node *n, uint32_t key, enum pst_event_kind kind)
{
    struct pst_event event = {
        .key = key_of(key), .generation = n->held[key], .kind = (uint8_t)kind, .tier = PST_POOL_DRAM};

    if (n->epoch)
        pst_report_event(n->tellings[share_of(key, n->share_count)].report, &event);
}

static void let_key_go(struct sim *s, struct node *n, uint32_t key)
{
    s->holders[key]--;
    tell_key(n, key, PST_EVENT_DEL);
    n->held[key] = 0;
    n->held_count--;
}

static void take_key(struct sim *s, struct node *n, uint32_t key)
{
    if (n->held[key])
        return;
    for (uint32_t i = (uint32_t)draw(s, KEYS_MAX); (n->held_count + 1) * KEY_BYTES > NODE_BYTES;
         i = (i + 1) % KEYS_MAX)
        if (n->held[i])
            let_key_go(s, n, i);
    n->held[key] = ++s->generation;
    n->held_ns[key] = s->now_ns;
    n->held_count++;
    s->holders[key]++;
    tell_key(n, key, PST_EVENT_ADD);
    s->counts.puts++;
}

/* Keys come and go by themselves, too, sometimes many at once. */
static void churn(struct sim *s, struct node *n)
{
    for (uint64_t i = draw(s, 20) ? draw(s, 2) : draw(s, 40); i > 0; i--) {
        uint32_t key = (uint32_t)draw(s, s->key_count);

        if (n->held[key])
            let_key_go(s, n, key);
        else if (s->holders[key] < PST_PLACES_MAX && draw(s, 3) == 0)
            take_key(s, n, key);
    }
}

/* Asks about the next of its keys, when the directory says that it is time. */
static void ask_repair(struct sim *s, int number, struct telling *t)
{
    struct node *n = &s->nodes[number];
    struct message *m;

    if (s->plant == PLANT_no_repair || !n->epoch || t->repair == 0 || t->repair == t->repaired ||
        s->now_ns < t->repair_ns + 1000 * MS)
        return;
    m = message_new(TO_REPAIR, number, t->share ? SHARE_0 - (int)t->share : MASTER);
    m->session = n->process;
    m->keys = calloc(REPAIR_KEYS, sizeof(*m->keys));
    pst_assert(m->keys);
    m->repair.head = (struct pst_repair){.member = n->member,
                                         .epoch = n->epoch,
                                         .repair = t->repair,
                                         .flags = t->repair_at == 0 ? PST_REPAIR_BEGIN : 0};
    for (uint32_t key = t->repair_at; key < KEYS_MAX && m->repair.count < REPAIR_KEYS; key++) {
        if (!n->held[key] || share_of(key, n->share_count) != t->share)
            continue;
        m->repair.numbers[m->repair.count] = key;
        m->keys[m->repair.count++] =
            (struct pst_put){.key = key_of(key), .bytes = KEY_BYTES, .replicas = 1, .evictable = true};
    }
    m->repair.head.flags |= m->repair.count < REPAIR_KEYS ? PST_REPAIR_END : 0;
    t->repair_ns = s->now_ns;
    send(s, m);
}

static void take_repaired(struct sim *s, int number, const struct message *m)
{
    struct node *n = &s->nodes[number];
    struct telling *t = &n->tellings[m->from == MASTER ? 0 : SHARE_0 - m->from];

    if (m->result != 0 || m->repair.head.epoch != n->epoch || m->repair.head.repair != t->repair ||
        !m->snapshot)
        return;
    for (uint32_t i = 0; i < m->repair.count; i++) {
        const struct pst_route *route = &m->routes[i];

        t->repair_at = m->repair.numbers[i] + 1;
        for (uint32_t p = 0; p < route->places.count && n->held[m->repair.numbers[i]]; p++) {
            int to = node_of_member(s, m->snapshot->map, route->places.items[p].member);
            struct message *copy;

            if (to < 0)
                continue;
            copy = message_new(NODE_COPY, number, to);
            copy->any.key = m->repair.numbers[i];
            send(s, copy);
            s->counts.repairs++;
        }
    }
    if (m->repair.head.flags & PST_REPAIR_END)
        t->repaired = t->repair;
    t->repair_ns = 0;
    ask_repair(s, number, t);
}

/* ---- membership ---- */

static void ask_to_register(struct sim *s, int number)
{
    struct node *n = &s->nodes[number];
    struct message *m = message_new(TO_REGISTER, number, MASTER);
    uint32_t id = (uint32_t)number + 1, host = (uint32_t)number % s->host_count;

    m->session = n->process;
    m->registration = (struct pst_register){.start = n->start,
                                            .page_bytes = 4096,
                                            .kept_epoch = n->kept_epoch,
                                            .kept_durable = n->kept_durable,
                                            .address = "",
                                            .unix_path = "",
                                            .tags = ""};
    memcpy(m->registration.id.bytes, &id, sizeof(id));
    memcpy(m->registration.host.bytes, &host, sizeof(host));
    n->tellings[0].beat_ns = s->now_ns;
    send(s, m);
}

static void send_heartbeat(struct sim *s, int number, struct telling *t)
{
    struct node *n = &s->nodes[number];
    struct pst_tier_use tiers[PST_POOL_TIERS] = {
        [PST_POOL_DRAM] = {NODE_BYTES, (uint64_t)n->held_count * KEY_BYTES}};
    struct message *m = message_new(TO_HEARTBEAT, number, t->share ? SHARE_0 - (int)t->share : MASTER);

    m->session = n->process;
    m->heartbeat = *pst_report_next(t->report, tiers, node_now(s, n), &t->sent_ns);
    if (m->heartbeat.event_count > 0) {
        m->events = calloc(m->heartbeat.event_count, sizeof(*m->events));
        pst_assert(m->events);
        memcpy(m->events, m->heartbeat.events, m->heartbeat.event_count * sizeof(*m->events));
    }
    m->heartbeat.events = m->events;
    t->beat_ns = s->now_ns;
    t->hurries = false;
    send(s, m);
}

void node_fetch(struct sim *s, int number)
{
    struct node *n = &s->nodes[number];
    struct message *m;

    if (s->now_ns < n->fetch_ns + 200 * MS)
        return;
    n->fetch_ns = s->now_ns;
    m = message_new(TO_FETCH, number, MASTER);
    m->session = n->process;
    send(s, m);
}

static void step(struct sim *s, int number)
{
    struct node *n = &s->nodes[number];

    timer(s, number, n->process, 60 * MS + draw(s, 80 * MS));
    if (!n->epoch) {
        if (s->now_ns >= n->tellings[0].beat_ns + 500 * MS)
            ask_to_register(s, number);
        return;
    }
    for (uint32_t i = 0; i < n->share_count; i++) {
        struct telling *t = &n->tellings[i];

        if (t->hurries || s->now_ns >= t->beat_ns + s->settings.heartbeat_ms * MS)
            send_heartbeat(s, number, t);
    }
    if (s->now_ns >= n->fetch_ns + 3000 * MS)
        node_fetch(s, number);
    if (s->now_ns < s->quiet_ns)
        churn(s, n);
    for (uint32_t i = 0; i < USED; i++)
        home_step(s, number, i);
}

static void take_registered(struct sim *s, int number, const struct message *m)
{
    struct node *n = &s->nodes[number];

    if (m->result < 0 || m->registered.epoch <= n->epoch)
        return;
    s->checked++;
    if (m->registered.version > s->durable_version)
        violation(s, "node %d hears of version %llu, and %llu is stored", number,
                  (unsigned long long)m->registered.version, (unsigned long long)s->durable_version);
    n->member = m->registered.member;
    n->epoch = m->registered.epoch;
    n->kept_epoch = n->epoch;
    n->kept_durable = false;
    n->member_ns = s->now_ns;
    pst_lease_drop(&n->lease);
    for (uint32_t i = 0; i < n->share_count; i++) {
        n->tellings[i].hurries = true;
        pst_report_join(n->tellings[i].report, n->member, n->epoch);
    }
    if (n->snapshot)
        home_follow_map(s, n);
    node_fetch(s, number);
}

static void leave(struct node *n)
{
    n->epoch = 0;
    pst_lease_drop(&n->lease);
    home_leave(n);
}

static void tell_leave(struct sim *s, int number, enum pst_left left)
{
    struct node *n = &s->nodes[number];
    struct message *m = message_new(TO_UNREGISTER, number, MASTER);

    m->session = n->process;
    m->member.number = n->member;
    m->member.left = left;
    m->member.epoch = n->epoch;
    send(s, m);
    if (s->plant != PLANT_serves_on)
        leave(n);
}

/* The process ends in order, and all that it had with it; the message may be lost. */
void node_end(struct sim *s, int number)
{
    note(s, "node %d ends in order", number);
    tell_leave(s, number, PST_LEFT_LOST);
    node_crash(s, number, LEFT_NOTHING);
}

/* The message may be lost, and come when the node is back: so it will be another in the directory's eyes. */
void node_leave(struct sim *s, int number)
{
    struct node *n = &s->nodes[number];

    note(s, "node %d leaves", number);
    tell_leave(s, number, PST_LEFT_KEPT);
    n->start = draw(s, UINT64_MAX - 1) + 1;
    n->tellings[0].beat_ns = s->now_ns + draw(s, 10000) * MS; /* until it asks to be a member again */
}

static void take_repair_time(struct sim *s, int number, struct telling *t, uint64_t repair)
{
    const struct node *n = &s->nodes[number];

    if (repair != t->repair || t->repair_epoch != n->epoch) {
        t->repair = repair;
        t->repair_epoch = n->epoch;
        t->repaired = t->repair_ns = t->repair_at = 0;
    }
    ask_repair(s, number, t);
    t->hurries = pst_report_is_behind(t->report);
}

/* Of who has another share than the first: it grants nothing, and wants nothing. */
static void take_share_beat(struct sim *s, int number, const struct message *m)
{
    struct node *n = &s->nodes[number];
    struct telling *t = &n->tellings[SHARE_0 - m->from];
    int r;

    if (!n->epoch)
        return;
    r = pst_report_answered(t->report, m->sequence, m->result, m->answer);
    if (r == -ESTALE)
        pst_report_join(t->report, n->member, n->epoch);
    if (r == 0)
        take_repair_time(s, number, t, m->answer->repair);
}

static void take_beat(struct sim *s, int number, struct message *m)
{
    struct node *n = &s->nodes[number];
    struct telling *t = &n->tellings[0];
    struct pst_heartbeat_answer *answer = m->answer;
    const struct pst_map *map = node_map(n);
    int r;

    if (!n->epoch)
        return;
    if (s->plant == PLANT_deaf_to_gaps)
        answer->sync = false;
    r = pst_report_answered(t->report, m->sequence, m->result, answer);
    if (r == -ESTALE) {
        note(s, "node %d is no member any more", number);
        leave(n);
    }
    if (r < 0 ||
        !pst_lease_grant(&n->lease, t->sent_ns, answer->lease_ms, answer->lease_version, answer->term))
        return;
    take_repair_time(s, number, t, answer->repair);
    n->granted_ns = answer->lease_ms ? s->now_ns : n->granted_ns;
    if (!map || map->version < answer->version)
        node_fetch(s, number);
    home_wanted(s, number, answer);
}

static void take_map(struct sim *s, int number, struct message *m)
{
    struct node *n = &s->nodes[number];
    const struct pst_map *map = node_map(n);

    if (!m->snapshot)
        return;
    if (!map || map->version < m->snapshot->map->version) {
        snapshot_drop(n->snapshot);
        n->snapshot = snapshot_ref(m->snapshot);
        home_follow_map(s, n);
    }
    home_take_up(s, number);
}

/* Messages are for a process, those of other nodes for a membership; others have to do with one before. */
void node_take(struct sim *s, int number, struct message *m)
{
    struct node *n = &s->nodes[number];

    switch (m->kind) {
    case TIMER:
        if (m->session == n->process)
            step(s, number);
        break;
    case IS_REGISTERED:
        if (m->session == n->process)
            take_registered(s, number, m);
        break;
    case IS_BEAT:
        if (m->session == n->process && m->from == MASTER)
            take_beat(s, number, m);
        else if (m->session == n->process)
            take_share_beat(s, number, m);
        break;
    case IS_MAP:
        take_map(s, number, m);
        break;
    case IS_CHANGED:
        if (m->session == n->process)
            home_changed(s, number, m);
        break;
    case IS_REPAIRED:
        if (m->session == n->process)
            take_repaired(s, number, m);
        break;
    case NODE_COPY:
    case ASK_STORE:
        if (n->epoch)
            take_key(s, n, m->any.key);
        break;
    default:
        home_take(s, number, m);
    }
    home_turn(s, number);
}
