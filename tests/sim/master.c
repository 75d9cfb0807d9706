/* SPDX-License-Identifier: Apache-2.0 */
/* master.c: what drives a directory: messages in, answers out when their pool map is stored, a file that is
 * written in its own time, and sudden ends. */
#include "sim.h"

/* An answer that waits for its version. */
struct held {
    struct held *next;
    uint64_t version;
    struct message *message;
};

uint64_t master_now(const struct sim *s)
{
    return s->now_ns + s->master_offset_ns;
}

static void follow_disk(struct sim *s)
{
    const struct pst_map *stored = pst_directory_map(s->directory);
    struct snapshot *snapshot = calloc(1, sizeof(*snapshot));
    int r;

    pst_assert(snapshot);
    r = pst_map_open(stored->members_max, 0, &snapshot->map);
    pst_assert(r == 0);
    pst_map_copy(snapshot->map, stored);
    snapshot->refs = 1;
    check_map(s, s->current ? s->current->map : NULL, stored);
    snapshot_drop(s->current);
    s->current = snapshot;
}

void master_start(struct sim *s)
{
    uint64_t version, drawn = draw(s, UINT32_MAX);
    struct pst_id pool = {{0}};
    int r;

    memcpy(&pool, &drawn, sizeof(drawn));
    s->master_session++;
    s->master_offset_ns = draw(s, 1000000) * MS; /* another machine's clock */
    r = pst_directory_open(&s->settings, (struct pst_bytes){s->disk, s->disk_bytes}, &pool, master_now(s),
                           &s->directory);
    pst_assert(r == 0);
    note(s, "master starts with version %llu", (unsigned long long)pst_directory_map(s->directory)->version);
    s->storing_version = 0;
    if (s->disk_bytes == 0) {
        r = pst_directory_place(s->directory, (struct pst_bytes){"h/", 2}, PST_PLACE_HOME, s->replicas,
                                &version);
        pst_assert(r == 0);
    } else {
        follow_disk(s);
    }
    timer(s, MASTER, s->master_session, MS);
}

static void let_go(struct sim *s, uint64_t version)
{
    struct held **link = &s->answers;

    while (*link) {
        struct held *held = *link;

        if (held->version > version) {
            link = &held->next;
            continue;
        }
        *link = held->next;
        send(s, held->message);
        free(held);
    }
}

void master_crash(struct sim *s)
{
    if (!s->directory)
        return;
    s->counts.balanced += pst_directory_counters(s->directory)->balanced;
    if (s->storing_version && draw(s, 2)) { /* it was written, and nobody learns that */
        memcpy(s->disk, s->disk_next, s->disk_next_bytes);
        s->disk_bytes = s->disk_next_bytes;
        s->durable_version = s->storing_version;
    }
    note(s, "master crashes");
    s->directory = pst_directory_close(s->directory);
    s->master_session++;
    while (s->answers) {
        struct held *held = s->answers;

        s->answers = held->next;
        message_drop(held->message);
        free(held);
    }
}

/* ---- the file ---- */

static void store(struct sim *s)
{
    struct message *done;

    if (s->storing_version || !pst_directory_unstored(s->directory))
        return;
    s->disk_next_bytes =
        pst_directory_store_begin(s->directory, s->disk_next, s->disk_cap, &s->storing_version);
    if (s->plant == PLANT_hearsay)
        let_go(s, s->storing_version);
    done = message_new(TIMER, MASTER, MASTER);
    done->session = s->master_session;
    done->request = s->storing_version;
    send_after(s, done, MS + draw(s, chance(s, 20000) ? 2000 * MS : 20 * MS));
}

static void stored(struct sim *s)
{
    uint64_t version = s->storing_version;

    memcpy(s->disk, s->disk_next, s->disk_next_bytes);
    s->disk_bytes = s->disk_next_bytes;
    s->durable_version = version;
    s->storing_version = 0;
    pst_directory_stored(s->directory, version, master_now(s));
    follow_disk(s);
    let_go(s, version);
}

static void on_timer(struct sim *s, const struct message *m)
{
    if (m->request) {
        stored(s);
    } else {
        timer(s, MASTER, s->master_session, 20 * MS);
        if (s->now_ns >= s->tick_ns) {
            pst_directory_tick(s->directory, master_now(s));
            s->tick_ns = s->now_ns + 100 * MS + draw(s, 150 * MS);
        }
    }
    store(s);
}

/* ---- messages ---- */

static struct message *answer_to(const struct message *m, enum kind kind, int result)
{
    struct message *answer = message_new(kind, m->to, m->from);

    answer->session = m->session;
    answer->request = m->request;
    answer->result = result;
    return answer;
}

static void send_when_stored(struct sim *s, struct message *answer, uint64_t version)
{
    struct held *held;

    if (pst_directory_map(s->directory)->version >= version) {
        send(s, answer);
        return;
    }
    held = calloc(1, sizeof(*held));
    pst_assert(held);
    *held = (struct held){s->answers, version, answer};
    s->answers = held;
}

static void take_register(struct sim *s, const struct message *m)
{
    struct pst_registered out = {.version = 0};
    int r = pst_directory_register(s->directory, &m->registration, master_now(s), &out);
    struct message *answer = answer_to(m, IS_REGISTERED, r);

    answer->registered = out;
    send_when_stored(s, answer, r == 0 ? out.version : 0);
}

static void take_heartbeat(struct sim *s, const struct seat *seat, const struct message *m)
{
    struct message *answer = answer_to(m, IS_BEAT, 0);

    answer->answer = calloc(1, sizeof(*answer->answer));
    pst_assert(answer->answer);
    answer->sequence = m->heartbeat.sequence;
    answer->result = pst_directory_heartbeat(seat->directory, &m->heartbeat, seat->now_ns, answer->answer);
    s->counts.beats++;
    send(s, answer);
}

static void take_change(struct sim *s, const struct message *m)
{
    uint64_t version = 0;
    int r = pst_directory_change_copy(s->directory, &m->change, &version);
    struct message *answer = answer_to(m, IS_CHANGED, r);

    answer->change = m->change;
    send_when_stored(s, answer, version);
}

static void take_changes(struct sim *s, const struct message *m)
{
    struct message *answer = answer_to(m, IS_CHANGED, 0);
    uint64_t last = 0, version;

    for (uint32_t i = 0; i < m->change_count; i++)
        if (pst_directory_change_copy(s->directory, &m->changes[i], &version) == 0)
            last = pst_max(last, version);
    send_when_stored(s, answer, last);
}

static void take_share(struct sim *s, const struct message *m)
{
    uint64_t version = 0;
    int r = pst_directory_take_share(s->directory, m->share.number, m->share.start, m->share.address,
                                     master_now(s), &version);
    struct message *answer = answer_to(m, IS_SHARED, r);

    answer->snapshot = s->current ? snapshot_ref(s->current) : NULL;
    send_when_stored(s, answer, version);
}

static void take_route(struct sim *s, const struct seat *seat, const struct message *m)
{
    struct pst_caller caller = {{{(uint8_t)draw(s, 255)}}};
    struct message *answer = answer_to(m, m->kind == TO_ROUTE_PUT ? IS_ROUTED : IS_FOUND, 0);
    struct pst_route *route = &answer->any.route;

    answer->any.key = m->any.key;
    if (m->kind == TO_ROUTE_PUT)
        pst_directory_route_put(seat->directory, &caller, &m->any.put, 1, seat->now_ns, route);
    else
        pst_directory_route_get(seat->directory, &caller, &m->any.put.key, 1, seat->now_ns, route);
    if (route->status == PST_ROUTE_INCOMPLETE && s->plant == PLANT_hasty_share)
        route->status = PST_ROUTE_MISS;
    else if (route->status == PST_ROUTE_MISS && !seat->fresh)
        route->status = PST_ROUTE_INCOMPLETE;
    if (route->status == PST_ROUTE_MISS && s->share_count > 1)
        check_missing(s, seat, m->any.put.key);
    answer->snapshot = snapshot_ref(seat->snapshot);
    send(s, answer);
}

static void take_repair(struct sim *s, const struct seat *seat, const struct message *m)
{
    struct message *answer = answer_to(m, IS_REPAIRED, 0);

    answer->repair = m->repair;
    answer->routes = calloc(REPAIR_KEYS, sizeof(*answer->routes));
    pst_assert(answer->routes);
    answer->result = pst_directory_repair(seat->directory, &m->repair.head, m->keys, m->repair.count,
                                          seat->now_ns, answer->routes);
    answer->snapshot = snapshot_ref(seat->snapshot);
    send(s, answer);
}

void seat_take(struct sim *s, const struct seat *seat, const struct message *m)
{
    if (m->kind == TO_HEARTBEAT)
        take_heartbeat(s, seat, m);
    else if (m->kind == TO_REPAIR)
        take_repair(s, seat, m);
    else if (m->kind == TO_SUSPECT)
        (void)pst_directory_suspect(seat->directory, m->member.number, m->member.epoch, seat->now_ns);
    else if (seat->snapshot)
        take_route(s, seat, m);
}

void master_take(struct sim *s, struct message *m)
{
    const struct seat seat = {s->directory, MASTER, master_now(s), true, s->current};

    if (!s->directory) {
        if (m->kind == TIMER && m->session == s->master_session)
            master_start(s);
        return;
    }
    if (m->kind == TIMER) {
        if (m->session == s->master_session)
            on_timer(s, m);
    } else if (m->kind == TO_REGISTER) {
        take_register(s, m);
    } else if (m->kind == TO_CHANGE) {
        take_change(s, m);
    } else if (m->kind == TO_CHANGES) {
        take_changes(s, m);
    } else if (m->kind == TO_SHARE) {
        take_share(s, m);
    } else if (m->kind == TO_FETCH) {
        struct message *answer = answer_to(m, IS_MAP, 0);

        answer->snapshot = snapshot_ref(s->current);
        send(s, answer);
    } else if (m->kind == TO_UNREGISTER) {
        uint64_t version;

        (void)pst_directory_unregister(s->directory, m->member.number, m->member.epoch, m->member.left,
                                       master_now(s), &version);
    } else {
        seat_take(s, &seat, m);
    }
}
