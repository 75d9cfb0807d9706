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

static uint32_t walk(void *ctx, bool again, struct pst_event *to, uint32_t room, bool *ended)
{
    struct node *n = ctx;
    uint32_t count = 0;

    if (again)
        n->walk_at = 0;
    for (; n->walk_at < KEYS_MAX && count < room; n->walk_at++)
        if (n->held[n->walk_at])
            to[count++] = (struct pst_event){.key = key_of(n->walk_at),
                                             .generation = n->held[n->walk_at],
                                             .kind = PST_EVENT_ADD,
                                             .tier = PST_POOL_DRAM};
    *ended = n->walk_at == KEYS_MAX;
    return count;
}

void node_start(struct sim *s, int number)
{
    struct node *n = &s->nodes[number];
    int r = pst_report_open(REPORT_EVENTS, MESSAGE_EVENTS, walk, n, &n->report);

    pst_assert(r == 0 && !n->up);
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
    n->report = NULL;
    n->epoch = n->frozen_until_ns = n->beat_ns = 0;
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
    pst_report_close(n->report);
}

/* ---- keys anywhere ---- */

static void tell_key(struct node *n, uint32_t key, enum pst_event_kind kind)
{
    struct pst_event event = {
        .key = key_of(key), .generation = n->held[key], .kind = (uint8_t)kind, .tier = PST_POOL_DRAM};

    if (n->epoch)
        pst_report_event(n->report, &event);
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
void node_repair(struct sim *s, int number)
{
    struct node *n = &s->nodes[number];
    struct message *m;

    if (s->plant == PLANT_no_repair || !n->epoch || n->repair == 0 || n->repair == n->repaired ||
        s->now_ns < n->repair_ns + 1000 * MS)
        return;
    m = message_new(TO_REPAIR, number, MASTER);
    m->session = n->process;
    m->keys = calloc(REPAIR_KEYS, sizeof(*m->keys));
    pst_assert(m->keys);
    m->repair.head = (struct pst_repair){.member = n->member,
                                         .epoch = n->epoch,
                                         .repair = n->repair,
                                         .flags = n->repair_at == 0 ? PST_REPAIR_BEGIN : 0};
    for (uint32_t key = n->repair_at; key < KEYS_MAX && m->repair.count < REPAIR_KEYS; key++) {
        if (!n->held[key])
            continue;
        m->repair.numbers[m->repair.count] = key;
        m->keys[m->repair.count++] =
            (struct pst_put){.key = key_of(key), .bytes = KEY_BYTES, .replicas = 1, .evictable = true};
    }
    m->repair.head.flags |= m->repair.count < REPAIR_KEYS ? PST_REPAIR_END : 0;
    n->repair_ns = s->now_ns;
    send(s, m);
}

static void take_repaired(struct sim *s, int number, const struct message *m)
{
    struct node *n = &s->nodes[number];

    if (m->result != 0 || m->repair.head.epoch != n->epoch || m->repair.head.repair != n->repair ||
        !m->snapshot)
        return;
    for (uint32_t i = 0; i < m->repair.count; i++) {
        const struct pst_route *route = &m->routes[i];

        n->repair_at = m->repair.numbers[i] + 1;
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
        n->repaired = n->repair;
    n->repair_ns = 0;
    node_repair(s, number);
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
    n->beat_ns = s->now_ns;
    send(s, m);
}

static void send_heartbeat(struct sim *s, int number)
{
    struct node *n = &s->nodes[number];
    struct pst_tier_use tiers[PST_POOL_TIERS] = {
        [PST_POOL_DRAM] = {NODE_BYTES, (uint64_t)n->held_count * KEY_BYTES}};
    struct message *m = message_new(TO_HEARTBEAT, number, MASTER);

    m->session = n->process;
    m->heartbeat = *pst_report_next(n->report, tiers, node_now(s, n), &n->sent_ns);
    if (m->heartbeat.event_count > 0) {
        m->events = calloc(m->heartbeat.event_count, sizeof(*m->events));
        pst_assert(m->events);
        memcpy(m->events, m->heartbeat.events, m->heartbeat.event_count * sizeof(*m->events));
    }
    m->heartbeat.events = m->events;
    n->beat_ns = s->now_ns;
    n->hurries = false;
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
        if (s->now_ns >= n->beat_ns + 500 * MS)
            ask_to_register(s, number);
        return;
    }
    if (n->hurries || s->now_ns >= n->beat_ns + s->settings.heartbeat_ms * MS)
        send_heartbeat(s, number);
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
    n->hurries = true;
    pst_lease_drop(&n->lease);
    pst_report_join(n->report, n->member, n->epoch);
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
    n->beat_ns = s->now_ns + draw(s, 10000) * MS; /* until it asks to be a member again */
}

static void take_beat(struct sim *s, int number, struct message *m)
{
    struct node *n = &s->nodes[number];
    struct pst_heartbeat_answer *answer = m->answer;
    const struct pst_map *map = node_map(n);
    int r;

    if (!n->epoch)
        return;
    if (s->plant == PLANT_deaf_to_gaps)
        answer->sync = false;
    r = pst_report_answered(n->report, m->sequence, m->result, answer);
    if (r == -ESTALE) {
        note(s, "node %d is no member any more", number);
        leave(n);
    }
    if (r < 0 ||
        !pst_lease_grant(&n->lease, n->sent_ns, answer->lease_ms, answer->lease_version, answer->term))
        return;
    if (answer->repair != n->repair || n->repair_epoch != n->epoch) {
        n->repair = answer->repair;
        n->repair_epoch = n->epoch;
        n->repaired = n->repair_ns = n->repair_at = 0;
    }
    node_repair(s, number);
    n->hurries = pst_report_is_behind(n->report);
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
        if (m->session == n->process)
            take_beat(s, number, m);
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
