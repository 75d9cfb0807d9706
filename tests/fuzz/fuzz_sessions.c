/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_sessions.c: three sessions ask a node of two or four shards, and the input says who is next: a
 * session's request, a value's bytes, a shard's mail, its port, the clock, a session's end. So commits,
 * reservations, views and reads meet in every order, and the same input meets in the same one. What is
 * answered is held against what may be (sessions_model.h); at the end nothing is left.
 */
#include "sessions_world.h"

#include "base/clock.h"
#include "store/figures.h"
#include "store/keys.h"
#include "store/read.h"
static struct world worlds[2];
struct world *w;
static const char *const keys[MODEL_KEYS] = {"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"};

/* The same in every run. */
void __wrap_pst_random(void *to, size_t bytes);

void __wrap_pst_random(void *to, size_t bytes)
{
    static uint64_t state = 1;

    for (size_t i = 0; i < bytes; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        ((uint8_t *)to)[i] = (uint8_t)(state >> 56);
    }
}

struct pst_bytes key_of(uint32_t key)
{
    return (struct pst_bytes){keys[key], strlen(keys[key])};
}

struct pst_shard_session *shard_session_of(uint32_t session, uint32_t worker)
{
    return w->workers[worker].by_place[session];
}

uint8_t next_id(void)
{
    w->ids = (uint8_t)(w->ids % 250 + 1);
    return w->ids;
}

void doom(uint32_t worker)
{
    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        if (w->keys_shard[i] == worker)
            w->model.keys[i].doomed = pst_shard_generation(w->workers[worker].shard);
    }
}

/* ---- the world ---- */

static void open_node(struct world *world, uint32_t worker_count)
{
    struct pst_store_options options = {
        .arenas = {.bytes = 4 << 20, .page_bytes = 64 << 10, .arena_bytes = 2 << 20},
        .shard_count = worker_count,
        .watermark_percent = 90,
    };
    const char *fault;
    int r = pst_store_open(&options, &world->node.store, &fault);

    pst_assert(r == 0);
    world->workers = calloc(worker_count, sizeof(*world->workers));
    pst_assert(world->workers);
    world->node.workers = world->workers;
    world->node.worker_count = worker_count;
    world->node.requests_max = 64;
    world->node.session_requests_max = 32;
    world->node.request_ns = 600 * 1000000000ull;
    world->node.sessions_max = SESSIONS;
    world->node.waits_max = world->node.session_waits_max = 4;
    world->node.watches_max = world->node.session_watches_max = 2;
    world->node.sessions = world->by_place;
    world->node.wake_fd = -1;
    for (uint32_t i = 0; i < worker_count; i++) {
        r = pst_worker_init(&world->workers[i], &world->node, i);
        pst_assert(r == 0);
    }
    world->node.wake_fd = world->workers[0].wake_fd;
    for (uint32_t i = 0; i < MODEL_KEYS; i++)
        world->keys_shard[i] = pst_node_route(&world->node, key_of(i));
}

static void begin_session(uint32_t number)
{
    struct pst_session *session = &w->sessions[number];

    *session = (struct pst_session){
        .magic = PST_SESSION_MAGIC,
        .token = ++w->tokens << 16 | number,
        .version = PST_WIRE_VERSION,
        .views = true,
        .shards_left = w->node.worker_count,
        .quota = {.reservations_max = 6, .pins_max = 3, .bytes_max = 1 << 20},
    };
    memset(w->asked[number], 0, sizeof(w->asked[number]));
    for (uint32_t i = 0; i < w->node.worker_count; i++) {
        int r = pst_shard_session_add(&w->workers[i], session);
        struct pst_shard_session *v = shard_session_of(number, i);

        pst_assert(r == 0);
        r = pst_peer_open(w->workers[i].port, "", 1, v, &v->peer);
        pst_assert(r == 0);
    }
    w->states[number] = SESSION_ON;
}

/* What it was not told may have been done. */
static void forget_asked(struct asked *asked)
{
    if (!asked->open)
        return;
    if (asked->commit)
        model_orphaned(&w->model, asked->commit);
    for (uint32_t i = 0; i < asked->count && !asked->garbage; i++)
        w->model.keys[asked->ops[i].key].vague = true;
    asked->open = false;
}

void end_session(uint32_t number)
{
    if (w->states[number] != SESSION_ON)
        return;
    w->states[number] = SESSION_ENDING;
    for (uint32_t i = 0; i < w->node.worker_count; i++) {
        pst_shard_session_leave(shard_session_of(number, i), NULL);
        for (uint32_t place = 0; place < PLACES; place++)
            forget_asked(&w->asked[number][i][place]);
    }
    for (uint32_t i = 0; i < RESERVATIONS; i++)
        w->reservations[i].live &= w->reservations[i].session != number;
    for (uint32_t i = 0; i < VIEWS; i++)
        w->views[i].live &= w->views[i].session != number;
}

/* The control thread's part. */
static void look_at_sessions(void)
{
    for (uint32_t number = 0; number < SESSIONS; number++) {
        struct pst_session *session = &w->sessions[number];

        for (uint32_t i = 0; i < w->node.worker_count && w->states[number] == SESSION_ENDING; i++) {
            struct pst_shard_session *v = shard_session_of(number, i);

            if (v && !v->peer)
                pst_shard_session_end(v);
        }
        if (w->states[number] == SESSION_ENDING && session->shards_left == 0) {
            pst_assert(session->quota.reservations == 0 && session->quota.bytes == 0 &&
                       session->quota.pins == 0);
            w->states[number] = SESSION_NONE;
        }
    }
}

/* What the transport was too busy for, it takes at once. */
void run_stalled(uint32_t worker)
{
    struct pst_list *stalled = &w->workers[worker].stalled;

    while (!pst_list_empty(stalled)) {
        struct pst_request *q = pst_list_first(stalled, struct pst_request, link);

        pst_list_remove(&q->link);
        pst_request_run(q);
    }
}

static bool read_mail(uint32_t worker)
{
    struct pst_worker *at = &w->workers[worker];
    struct pst_commit_message *mail;

    if (pst_list_empty(&at->commit_messages))
        return false;
    mail = pst_list_first(&at->commit_messages, struct pst_commit_message, link);
    pst_list_remove(&mail->link);
    pst_commit_receive(at, mail);
    run_stalled(worker);
    return true;
}

static bool poll_port(uint32_t worker)
{
    struct pst_net_event event;

    if (pst_port_poll(w->workers[worker].port, &event, 1) == 0)
        return false;
    if (event.kind == PST_NET_RECEIVED)
        pst_request_received(event.arg, event.status);
    else if (event.kind == PST_NET_PEER_GONE)
        pst_shard_session_peer_gone(event.arg);
    run_stalled(worker);
    return true;
}

static void set_time(uint64_t now_ns)
{
    w->now_ns = now_ns;
    for (uint32_t i = 0; i < w->node.worker_count; i++) {
        w->workers[i].now_ns = now_ns;
        pst_shard_time(w->workers[i].shard, now_ns);
    }
}

static void pass_time(struct fuzz *in)
{
    set_time(w->now_ns + (1000000ull << fuzz_below(in, 14)));
    for (uint32_t i = 0; i < w->node.worker_count; i++) {
        pst_shard_tick(w->workers[i].shard, w->now_ns);
        pst_late_run(&w->workers[i]);
        run_stalled(i);
    }
}

/* With no commit underway, what nobody was told can be looked up. */
static void settle_model(void)
{
    if (w->node.commits)
        return;
    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        struct model_key *k = &w->model.keys[i];
        struct pst_shard *shard = w->workers[w->keys_shard[i]].shard;
        struct pst_lookup lookup = pst_shard_lookup(shard, key_of(i));
        const struct pst_record *r;
        struct iovec piece = {0};

        if (!k->vague)
            continue;
        r = pst_shard_find(shard, &lookup);
        if (r && pst_record_piece(shard, r, 0, r->value_bytes, &piece))
            k->id = *(const uint8_t *)piece.iov_base;
        k->gone = r ? k->gone : pst_shard_generation(shard);
        k->generation = r ? r->generation : k->generation;
        k->gone = r ? pst_min(k->gone, r->generation - 1) : k->gone;
        k->vague = false;
    }
}

static void look_at_views(void)
{
    for (uint32_t i = 0; i < VIEWS; i++) {
        if (w->views[i].live && w->views[i].bytes)
            pst_assert(byte_of((struct pst_bytes){w->views[i].at, w->views[i].bytes}) == w->views[i].byte);
    }
}

/* ---- a run ---- */

static void step(struct fuzz *in)
{
    uint8_t byte = (uint8_t)fuzz_number(in, 1);
    uint32_t worker = byte % w->node.worker_count, session = byte / 16 % SESSIONS;
    uint32_t what = fuzz_below(in, 24);

    if (what < 5) {
        read_mail(worker);
    } else if (what < 8) {
        poll_port(worker);
    } else if (what == 8) {
        pass_time(in);
    } else if (w->states[session] == SESSION_NONE) {
        begin_session(session);
    } else if (w->states[session] == SESSION_ENDING) {
        look_at_sessions();
    } else if (what == 9) {
        if (fuzz_below(in, 4) == 1)
            end_session(session);
    } else if (what < 13) {
        ask_commit(in, session, worker);
    } else if (what < 16) {
        ask_slow(in, session, worker);
    } else if (what < 19) {
        send_value(in, session, worker);
    } else if (what == 19) {
        if (fuzz_below(in, 4) == 1)
            ask_anything(in, session, worker);
    } else {
        ask_quick(in, session, worker);
    }
    look_at_views();
    settle_model();
}

static void run_dry(void)
{
    bool more;

    do {
        more = false;
        for (uint32_t i = 0; i < w->node.worker_count; i++)
            more = read_mail(i) || poll_port(i) || more;
        look_at_sessions();
    } while (more);
}

static void delete_all(struct pst_shard *shard)
{
    uint8_t answer[PST_SWEEP_BYTES_MAX];
    struct pst_wire_sweep swept = {.done = 0};

    for (struct pst_range all = {.after = false}; !swept.done;) {
        size_t bytes = pst_shard_sweep(shard, &all, false, w->now_ns, answer);

        pst_assert(bytes > 0); /* no commit is underway */
        memcpy(&swept, answer, sizeof(swept));
    }
}

/* Everybody goes: the store is as it was. */
static void end_run(void)
{
    struct pst_store_stat store;

    for (uint32_t i = 0; i < SESSIONS; i++)
        end_session(i);
    run_dry();
    pst_assert(w->node.commits == 0);
    for (uint32_t i = 0; i < SESSIONS; i++)
        pst_assert(w->states[i] == SESSION_NONE);
    for (uint32_t i = 0; i < w->node.worker_count; i++) {
        struct pst_shard_later later;
        struct pst_shard_stat stat;

        pst_assert(stub_messages(w->ports[i]) == 0 && w->workers[i].underway == 0 &&
                   w->workers[i].commits == 0);
        pst_assert(*w->workers[i].locks == 0);
        w->ports[i] = stub_port_close(w->ports[i]);
        delete_all(w->workers[i].shard);
        pst_shard_stat(w->workers[i].shard, &stat);
        pst_shard_stat_later(w->workers[i].shard, &later);
        pst_assert(stat.keys == 0 && stat.value_bytes == 0 && stat.pinned == 0 && stat.slab_bytes == 0);
        pst_assert(later.reservations == 0 && later.reservation_bytes == 0 && later.waits == 0 &&
                   later.watches == 0);
    }
    pst_store_stat(w->node.store, &store);
    pst_assert(store.pages_used == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    uint8_t how = (uint8_t)fuzz_number(&in, 1);

    w = &worlds[how & 1];
    if (!w->node.store)
        open_node(w, how & 1 ? 4 : 2);
    memset(&w->model, 0, sizeof(w->model));
    memset(w->reservations, 0, sizeof(w->reservations));
    memset(w->views, 0, sizeof(w->views));
    for (uint32_t i = 0; i < w->node.worker_count; i++) {
        w->ports[i] = stub_port_open(hear_sent, (void *)(uintptr_t)i);
        w->workers[i].port = stub_port_base(w->ports[i]);
    }
    set_time(w->now_ns ? w->now_ns : pst_now_ns());
    for (uint32_t i = 0; i < SESSIONS; i++)
        begin_session(i);
    for (int i = 0; i < STEPS_MAX && in.left > 0; i++)
        step(&in);
    end_run();
    return 0;
}
