/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node and its client in one process, over the transport in memory while that loses, repeats, reorders and
 * holds back messages, and while fault points fail. Every operation ends, with what is documented: a value is
 * never wrong, a write that is said not to have happened has not happened, and no memory is written to that
 * its owner has back. A hang ends the program.
 */
#include "lib/cm.h"

#include "base/fault.h"
#include "net/inproc.h"

#include <penstock/penstock.h>
#include <pthread.h>
#include <stdio.h>

enum {
    KEYS = 10,
    BATCH = 6,
    TIMEOUT_MS = 150, /* where messages are lost or held back */
    PATIENT_MS = 30000,
    MAYBE_MAX = 32,
    VALUE_BYTES_MAX = 3 << 20,
    SECONDS_MAX = 230, /* on a machine that does other things, too */
    GUARD = 0xa5,
};

struct rig {
    char folder[64];
    struct penstock_node *node;
    struct penstock *store;
};

/* What a key may hold, by what its operations returned: versions, 0 for nothing. */
struct known {
    uint32_t maybe[MAYBE_MAX];
    uint32_t count;
};

static uint64_t state_of_chance;

static uint32_t chance(uint32_t below)
{
    return (uint32_t)(pst_fault_dice(9, 9, ++state_of_chance) % below);
}

/* ---- a node and a client ---- */

static void rig_open(struct rig *rig, uint32_t timeout_ms)
{
    char unix_setting[96];
    const char *const settings[] = {unix_setting, "dram=64M", "page_size=64K", "shards=2", NULL};
    struct penstock_node_options node = {.size = sizeof(node), .settings = settings};
    struct penstock_options options = {
        .size = sizeof(options), .timeout_ms = timeout_ms, .connect_ms = 20000};

    strcpy(rig->folder, "/tmp/penstock-trouble-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    snprintf(unix_setting, sizeof(unix_setting), "unix=%s/socket", rig->folder);
    assert_int_equal(penstock_node_open(&node, &rig->node), 0);
    assert_int_equal(penstock_open(penstock_node_url(rig->node, 0), &options, &rig->store), 0);
    assert_string_equal(penstock_lane(rig->store), "memory");
}

static void rig_close(struct rig *rig)
{
    penstock_close(rig->store);
    penstock_node_close(rig->node);
    assert_int_equal(rmdir(rig->folder), 0);
}

static struct penstock_stat stat_of(struct rig *rig)
{
    struct penstock_stat stat = {.size = sizeof(stat)};

    for (int tries = 0; penstock_stat(rig->store, &stat) < 0; tries++)
        assert_true(tries < 100);
    return stat;
}

static void expect_alone(struct rig *rig)
{
    for (int i = 0; i < 500 && stat_of(rig).sessions != 1; i++)
        usleep(10000);
    assert_int_equal(stat_of(rig).sessions, 1);
}

/* ---- values ---- */

static uint64_t size_of(uint32_t key)
{
    static const uint64_t sizes[] = {40, 2000, 2049, 70000, 300000, VALUE_BYTES_MAX};

    return sizes[key % pst_count_of(sizes)];
}

static void fill(uint8_t *value, uint64_t bytes, uint32_t version)
{
    for (uint64_t i = 0; i < bytes; i++)
        value[i] = (uint8_t)(version >> 8 * (i % 4)) ^ (uint8_t)(i / 4 % 251);
}

static bool filled(const uint8_t *value, uint64_t bytes, uint32_t version)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (value[i] != ((uint8_t)(version >> 8 * (i % 4)) ^ (uint8_t)(i / 4 % 251)))
            return false;
    }
    return true;
}

static bool all_guard(const uint8_t *value, uint64_t bytes)
{
    return value[0] == GUARD && memcmp(value, value + 1, bytes - 1) == 0;
}

/* ---- what is known ---- */

static void know(struct known *known, uint32_t version)
{
    known->maybe[0] = version;
    known->count = 1;
}

static void may_be(struct known *known, uint32_t version)
{
    assert_true(known->count < MAYBE_MAX);
    known->maybe[known->count++] = version;
}

static void must_be(struct known *known, uint32_t version, uint32_t key)
{
    for (uint32_t i = 0; i < known->count; i++) {
        if (known->maybe[i] == version) {
            know(known, version);
            return;
        }
    }
    fail_msg("key %u is found with version %u, which it cannot have", key, version);
}

static void expect_documented(const struct penstock_op *op)
{
    bool reads = op->code == PENSTOCK_GET;

    switch (op->result) {
    case PENSTOCK_OK:
    case PENSTOCK_BUSY:
    case -ETIMEDOUT:
    case -ECONNRESET:
    case -EHOSTUNREACH:
    case -EBUSY:
    case -ENOMEM:
    case -ENOSPC:
        return;
    case PENSTOCK_MISS:
        assert_true(op->code != PENSTOCK_PUT);
        return;
    case PENSTOCK_UNKNOWN:
        assert_false(reads);
        return;
    default:
        fail_msg("operation %u ended with %d", op->code, op->result);
    }
}

struct act {
    struct penstock_op op;
    uint32_t key, version;
    char name[16];
    uint8_t *value;
};

static void learn(struct known *known, const struct act *act)
{
    const struct penstock_op *op = &act->op;
    uint32_t version;

    expect_documented(op);
    if (op->code == PENSTOCK_PUT && op->result == PENSTOCK_OK) {
        know(known, act->version);
    } else if (op->code == PENSTOCK_DELETE && op->result == PENSTOCK_OK) {
        know(known, 0);
    } else if (op->result == PENSTOCK_UNKNOWN) {
        may_be(known, op->code == PENSTOCK_PUT ? act->version : 0);
    } else if (op->result == PENSTOCK_MISS) {
        must_be(known, 0, act->key);
    } else if (op->code == PENSTOCK_GET && op->result == PENSTOCK_OK) {
        assert_int_equal(op->value_bytes, size_of(act->key));
        memcpy(&version, act->value, sizeof(version)); /* as fill() wrote it: its first word is the version */
        assert_true(filled(act->value, op->value_bytes, version));
        must_be(known, version, act->key);
    }
}

/* ---- acts ---- */

static uint32_t versions;

static void prepare(struct act *act, uint32_t key, enum penstock_code code)
{
    act->key = key;
    act->op = (struct penstock_op){0};
    snprintf(act->name, sizeof(act->name), "key%u", key);
    if (code == PENSTOCK_PUT) {
        act->version = ++versions;
        fill(act->value, size_of(key), act->version);
        penstock_prep_put(&act->op, act->name, strlen(act->name), act->value, size_of(key));
    } else if (code == PENSTOCK_GET) {
        memset(act->value, 0, size_of(key));
        penstock_prep_get(&act->op, act->name, strlen(act->name), act->value, size_of(key));
    } else {
        penstock_prep(&act->op, code, act->name, strlen(act->name));
    }
}

static void acts_new(struct act *acts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        acts[i].value = malloc(VALUE_BYTES_MAX);
        assert_non_null(acts[i].value);
    }
}

static void acts_free(struct act *acts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        free(acts[i].value);
}

/* Keys that differ, so that the order within a batch does not matter. */
static void random_batch(struct rig *rig, struct act *acts, struct known *known)
{
    static const enum penstock_code codes[] = {PENSTOCK_PUT, PENSTOCK_PUT, PENSTOCK_GET, PENSTOCK_GET,
                                               PENSTOCK_DELETE};
    struct penstock_op ops[BATCH];
    uint32_t first = chance(KEYS);

    for (uint32_t i = 0; i < BATCH; i++) {
        uint32_t key = (first + i) % KEYS;
        bool full = known[key].count > MAYBE_MAX / 2;

        prepare(&acts[i], key, full ? PENSTOCK_GET : codes[chance(pst_count_of(codes))]);
        ops[i] = acts[i].op;
    }
    penstock_batch(rig->store, ops, BATCH);
    for (uint32_t i = 0; i < BATCH; i++) {
        acts[i].op = ops[i];
        learn(&known[acts[i].key], &acts[i]);
    }
}

/* With nothing wrong any more: every key is what it may be, and the node's figures are exact. */
static void settle_accounts(struct rig *rig, struct act *act, struct known *known)
{
    uint64_t keys = 0, value_bytes = 0;
    struct penstock_stat stat;

    for (uint32_t key = 0; key < KEYS; key++) {
        for (int tries = 0;; tries++) {
            assert_true(tries < 100);
            prepare(act, key, PENSTOCK_GET);
            penstock_batch(rig->store, &act->op, 1);
            learn(&known[key], act);
            if (act->op.result == PENSTOCK_OK || act->op.result == PENSTOCK_MISS)
                break;
        }
        keys += act->op.result == PENSTOCK_OK;
        value_bytes += act->op.result == PENSTOCK_OK ? size_of(key) : 0;
    }
    stat = stat_of(rig);
    assert_int_equal(stat.keys, keys);
    assert_int_equal(stat.value_bytes, value_bytes);
    expect_alone(rig);
    stat = stat_of(rig);
    assert_int_equal(stat.pinned, 0);
    assert_int_equal(stat.reservations, 0);
}

/* Random acts while the transport does @net and the points of @faults fail; then all must add up. */
static uint32_t run_acts(uint32_t timeout_ms, const char *net, const char *faults, int batches)
{
    struct act acts[BATCH];
    struct known known[KEYS];
    struct rig rig;
    uint32_t unknown = 0;

    acts_new(acts, BATCH);
    for (uint32_t key = 0; key < KEYS; key++)
        know(&known[key], 0);
    rig_open(&rig, timeout_ms);
    assert_int_equal(pst_memory_chance(net), 0);
    assert_int_equal(pst_faults_arm(faults), 0);
    for (int i = 0; i < batches; i++) {
        random_batch(&rig, acts, known);
        for (uint32_t k = 0; k < BATCH; k++)
            unknown += acts[k].op.result == PENSTOCK_UNKNOWN || acts[k].op.result < 0;
    }
    assert_int_equal(pst_faults_arm(""), 0);
    assert_int_equal(pst_memory_chance(""), 0);
    settle_accounts(&rig, &acts[0], known);
    rig_close(&rig);
    acts_free(acts, BATCH);
    return unknown;
}

static void copies_and_disorder_change_nothing(void **state)
{
    (void)state;
    assert_int_equal(run_acts(PATIENT_MS, "seed=1,dup=100000", "", 300), 0);
    assert_int_equal(run_acts(PATIENT_MS, "seed=2,reorder=100000", "", 300), 0);
    assert_int_equal(run_acts(PATIENT_MS, "seed=3,dup=100000,reorder=100000,delay_us=300", "", 300), 0);
}

static void losses_are_told(void **state)
{
    (void)state;
    assert_true(run_acts(TIMEOUT_MS, "seed=4,drop=10000", "", 100) > 0);
    assert_true(run_acts(TIMEOUT_MS, "seed=5,drop=10000,dup=50000,reorder=50000,delay_us=300", "", 100) > 0);
    assert_true(run_acts(TIMEOUT_MS, "seed=6,drop=100000", "", 20) > 0);
}

/* Each point alone, then all of them. */
static void fault_points_are_told(void **state)
{
    static const char *const names[] = {
#define X(name) #name,
        PST_FAULTS(X)
#undef X
    };
    char text[2048] = "seed=1", one[64];

    (void)state;
    for (size_t i = 0; i < pst_count_of(names); i++) {
        snprintf(one, sizeof(one), "%s:per_million=20000,seed=%zu", names[i], i);
        run_acts(TIMEOUT_MS, "", one, 30);
        snprintf(one, sizeof(one), ",%s:per_million=3000", names[i]);
        strcat(text, one);
    }
    run_acts(TIMEOUT_MS, "", text, 100);
}

/* A session that no shard has memory for ends when every shard has heard of its end. */
static void no_memory_for_shard_sessions(void **state)
{
    struct penstock_options options = {.size = sizeof(options), .connect_ms = 300};
    struct penstock *other = NULL;
    struct rig rig;

    (void)state;
    rig_open(&rig, PATIENT_MS);
    assert_int_equal(pst_faults_arm("node_shard_session_enomem:per_million=1000000"), 0);
    for (int i = 0; i < 20; i++) {
        assert_true(penstock_open(penstock_node_url(rig.node, 0), &options, &other) < 0);
        assert_null(other);
    }
    assert_int_equal(pst_faults_arm(""), 0);
    options.connect_ms = 20000;
    assert_int_equal(penstock_open(penstock_node_url(rig.node, 0), &options, &other), 0);
    penstock_close(other);
    expect_alone(&rig);
    rig_close(&rig);
}

/* As when a shard has opened its port anew since it told its address, which takes the client's session too.
 */
static void a_connection_is_tried_again(void **state)
{
    bool more = true;

    (void)state;
    for (int nth = 1; more; nth++) {
        struct penstock_options options = {.size = sizeof(options), .connect_ms = 20000};
        struct penstock *second;
        struct rig rig;
        char text[64];

        rig_open(&rig, PATIENT_MS);
        snprintf(text, sizeof(text), "net_open_fails:nth=%d", nth);
        assert_int_equal(pst_faults_arm(text), 0);
        assert_int_equal(penstock_open(penstock_node_url(rig.node, 0), &options, &second), 0);
        assert_int_equal(penstock_put(second, "key", 3, "value", 5), 0);
        more = pst_fault_hits(PST_FAULT_net_open_fails) > 0;
        assert_int_equal(pst_faults_arm(""), 0);
        assert_true(more || nth > 2); /* two shards to connect to, at least */
        assert_true(nth < 20);
        penstock_close(second);
        rig_close(&rig);
    }
}

/* ---- memory that was given back ---- */

/*
 * Operations end by their deadline while the transport holds everything back for longer. From that moment
 * their memory is the caller's, and the node's pages take other values: neither may change when the time has
 * come for what was held back.
 */
static void memory_is_left_alone(void **state)
{
    enum { COUNT = 24, DELAY_MS = 700, ROUNDS = 10 };
    struct act acts[COUNT], again;
    struct known known[COUNT];
    uint32_t late = 0;
    struct rig rig;

    (void)state;
    acts_new(acts, COUNT);
    acts_new(&again, 1);
    rig_open(&rig, TIMEOUT_MS);
    for (uint32_t i = 0; i < COUNT; i++) {
        prepare(&acts[i], i, PENSTOCK_PUT);
        assert_int_equal(penstock_batch(rig.store, &acts[i].op, 1), 0);
        know(&known[i], acts[i].version);
    }
    for (int round = 0; round < ROUNDS; round++) {
        char text[64];
        struct penstock_queue *queue;
        struct penstock_op *done[COUNT];
        uint32_t ended = 0;

        assert_int_equal(penstock_queue_open(rig.store, &queue), 0);
        snprintf(text, sizeof(text), "seed=%d,%s=%d", round, round % 4 ? "hold_us" : "delay_us",
                 DELAY_MS * 1000);
        for (uint32_t i = 0; i < COUNT; i++) {
            if (i == (uint32_t)(round * COUNT / ROUNDS / 2)) /* some have been on their way */
                assert_int_equal(pst_memory_chance(text), 0);
            prepare(&acts[i], i, (i + (uint32_t)round) % 2 ? PENSTOCK_PUT : PENSTOCK_GET);
            assert_int_equal(penstock_submit(queue, &acts[i].op, 1), 0);
        }
        while (ended < COUNT) {
            int n = penstock_reap(queue, done, COUNT, 1000);

            assert_true(n >= 0);
            for (int k = 0; k < n; k++) {
                struct act *act = pst_container_of(done[k], struct act, op);

                learn(&known[act->key], act);
                late += act->op.result != PENSTOCK_OK;
                memset(act->value, GUARD, VALUE_BYTES_MAX);
            }
            ended += (uint32_t)n;
        }
        assert_int_equal(pst_memory_chance(""), 0);
        assert_null(penstock_queue_close(queue));
        /* Deletes and puts move values to pages that the transport may have been filling. */
        for (uint32_t i = 0; i < COUNT; i++) {
            prepare(&again, i, i % 3 ? PENSTOCK_PUT : PENSTOCK_DELETE);
            penstock_batch(rig.store, &again.op, 1);
            learn(&known[i], &again);
        }
        usleep(DELAY_MS * 1000);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_true(all_guard(acts[i].value, VALUE_BYTES_MAX));
            prepare(&again, i, PENSTOCK_GET);
            penstock_batch(rig.store, &again.op, 1);
            learn(&known[i], &again);
        }
    }
    assert_true(late > 0);
    rig_close(&rig);
    acts_free(acts, COUNT);
    acts_free(&again, 1);
}

/* ---- a node in need ---- */

static int try_open(struct rig *rig, uint32_t connect_ms, struct penstock **out)
{
    struct penstock_options options = {
        .size = sizeof(options), .timeout_ms = PATIENT_MS, .connect_ms = connect_ms};

    return penstock_open(penstock_node_url(rig->node, 0), &options, out);
}

/* One side of a handshake has no memory, at each of its proofs: that handshake ends, and nothing else. */
static void proofs_without_memory_are_told(void **state)
{
    enum { PROOFS = 6 }; /* made and checked: the client's, the node's, the client's address' */
    struct penstock *other;
    struct rig rig;

    (void)state;
    rig_open(&rig, PATIENT_MS);
    for (int nth = 1; nth <= PROOFS; nth++) {
        char text[64];
        int r;

        snprintf(text, sizeof(text), "boot_mac_enomem:nth=%d", nth);
        assert_int_equal(pst_faults_arm(text), 0);
        r = try_open(&rig, PATIENT_MS, &other);
        assert_int_equal(pst_fault_hits(PST_FAULT_boot_mac_enomem), 1);
        /* A handshake that the node ended is made again; what the client lacks ends the call. */
        assert_true(r == 0 || (nth < PROOFS && r == -ENOMEM));
        if (r == 0)
            penstock_close(other);
        assert_int_equal(pst_faults_arm(""), 0);
        assert_int_equal(try_open(&rig, PATIENT_MS, &other), 0);
        penstock_close(other);
    }
    stat_of(&rig);
    rig_close(&rig);
}

static void *open_another(void *arg)
{
    struct rig *rig = arg;
    struct penstock *other = NULL;
    int r = try_open(rig, PATIENT_MS, &other);

    penstock_close(other);
    return (void *)(intptr_t)r;
}

/* The node answers on its socket, and for longer than the first hellos wait its shards say nothing. */
static void a_node_without_a_core_is_waited_for(void **state)
{
    enum { HELLOS_US = 4000000 };
    pthread_t thread;
    struct rig rig;
    void *r;

    (void)state;
    rig_open(&rig, PATIENT_MS);
    assert_int_equal(pst_memory_chance("drop=1000000"), 0);
    assert_int_equal(pthread_create(&thread, NULL, open_another, &rig), 0);
    usleep(HELLOS_US);
    assert_int_equal(pst_memory_chance(""), 0);
    assert_int_equal(pthread_join(thread, &r), 0);
    assert_int_equal((intptr_t)r, 0);
    rig_close(&rig);
}

/* A shard has to open its port anew, and cannot for a while: its node and its values stay. */
static void a_port_is_opened_when_it_can_be(void **state)
{
    struct penstock *other;
    struct known known;
    struct act act;
    struct rig rig;
    int r;

    (void)state;
    acts_new(&act, 1);
    rig_open(&rig, PATIENT_MS);
    prepare(&act, 0, PENSTOCK_PUT);
    assert_int_equal(penstock_batch(rig.store, &act.op, 1), 0);
    know(&known, act.version);
    assert_int_equal(try_open(&rig, PATIENT_MS, &other), 0);
    assert_int_equal(
        pst_faults_arm("node_probe_lost:per_million=1000000,node_port_fails:per_million=1000000"), 0);
    penstock_close(other); /* each shard sends itself a message now */
    while (pst_fault_hits(PST_FAULT_node_port_fails) < 6)
        usleep(10000);
    do
        r = try_open(&rig, 300, &other);
    while (r == -ETIMEDOUT); /* before it was told why */
    assert_int_equal(r, -EBUSY);
    assert_int_equal(pst_faults_arm(""), 0);
    assert_int_equal(try_open(&rig, PATIENT_MS, &other), 0);
    penstock_close(other);
    prepare(&act, 0, PENSTOCK_GET);
    assert_int_equal(penstock_batch(rig.store, &act.op, 1), 0);
    learn(&known, &act);
    rig_close(&rig);
    acts_free(&act, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proofs_without_memory_are_told),
        cmocka_unit_test(a_node_without_a_core_is_waited_for),
        cmocka_unit_test(a_port_is_opened_when_it_can_be),
        cmocka_unit_test(copies_and_disorder_change_nothing),
        cmocka_unit_test(losses_are_told),
        cmocka_unit_test(fault_points_are_told),
        cmocka_unit_test(no_memory_for_shard_sessions),
        cmocka_unit_test(a_connection_is_tried_again),
        cmocka_unit_test(memory_is_left_alone),
    };

    alarm(SECONDS_MAX * slowness());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
