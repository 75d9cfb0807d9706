/* SPDX-License-Identifier: Apache-2.0 */
/* What clients of a node may do, by the secret that each proved: every call in its grant and out of it, what
 * sessions of a grant share, and what a new file changes while they go on. */
#include "lib/cm.h"

#include "base/clock.h"
#include "node/node.h"

#include <penstock/penstock.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { CONNECT_MS = 20000, LARGE_BYTES = 300000, KEYS = 8 };

#define SECRET(name)              "secret-of-" name "-0123456789"
#define GRANT(name, rights, keys) "[" name "]\nrights = " rights "\n" keys "\nsecret = " SECRET(name) "\n"
#define ALL                       GRANT("all", "read write admin", "keys = all")
#define IN                        GRANT("in", "read write", "prefix = a/")
#define READS                     GRANT("reads", "read", "prefix = a/")
#define PUTS                      GRANT("puts", "write", "prefix = a/")

struct rig {
    char folder[64], url[128];
    struct pst_node *node;
    struct penstock *all;
};

static uint8_t large[LARGE_BYTES];

static void write_grants(const struct rig *rig, const char *text)
{
    char path[96];
    FILE *file;

    snprintf(path, sizeof(path), "%s/grants", rig->folder);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fchmod(fileno(file), 0600), 0);
    assert_int_equal(fclose(file), 0);
}

static int try_store(const struct rig *rig, const char *secret, uint32_t connect_ms, struct penstock **out)
{
    struct penstock_options options = {.size = sizeof(options),
                                       .connect_ms = connect_ms,
                                       .timeout_ms = CONNECT_MS,
                                       .secret = secret,
                                       .secret_bytes = strlen(secret)};

    return penstock_open(rig->url, &options, out);
}

static struct penstock *store_of(const struct rig *rig, const char *secret)
{
    struct penstock *store = NULL;

    assert_int_equal(try_store(rig, secret, CONNECT_MS, &store), 0);
    return store;
}

static void rig_open(struct rig *rig, const char *grants)
{
    struct pst_node_settings settings = {0};
    char fault[PST_FAULT_BYTES], path[96];

    *rig = (struct rig){.folder = "/tmp/penstock-grants-XXXXXX"};
    assert_non_null(mkdtemp(rig->folder));
    write_grants(rig, grants);
    snprintf(path, sizeof(path), "%s/socket", rig->folder);
    snprintf(rig->url, sizeof(rig->url), "node+unix://%s", path);
    assert_int_equal(pst_options_preset(&pst_node_options, &settings, fault), 0);
    assert_int_equal(pst_options_set(&pst_node_options, &settings, "unix", path, fault), 0);
    snprintf(path, sizeof(path), "%s/grants", rig->folder);
    assert_int_equal(pst_options_set(&pst_node_options, &settings, "grants", path, fault), 0);
    assert_int_equal(pst_options_set(&pst_node_options, &settings, "dram", "32M", fault), 0);
    assert_int_equal(pst_options_set(&pst_node_options, &settings, "page-size", "64K", fault), 0);
    assert_int_equal(pst_options_set(&pst_node_options, &settings, "shards", "2", fault), 0);
    assert_int_equal(pst_node_open(&settings, NULL, NULL, NULL, &rig->node, fault), 0);
    assert_int_equal(pst_node_begin(rig->node, fault), 0);
    pst_options_free(&pst_node_options, &settings);
    rig->all = store_of(rig, SECRET("all"));
}

static void rig_close(struct rig *rig)
{
    char path[96];

    penstock_close(rig->all);
    pst_node_close(rig->node);
    snprintf(path, sizeof(path), "%s/grants", rig->folder);
    unlink(path);
    assert_int_equal(rmdir(rig->folder), 0);
}

static uint64_t forbidden(const struct rig *rig)
{
    struct penstock_stat stat = {.size = sizeof(stat)};

    assert_int_equal(penstock_stat(rig->all, &stat), 0);
    return stat.forbidden;
}

/* Until the control thread has put a new file into force: a secret of it is let in. */
static void reload(const struct rig *rig, const char *grants)
{
    static int count;
    char fault[PST_FAULT_BYTES], text[4096], secret[64];
    struct penstock *store = NULL;

    snprintf(secret, sizeof(secret), "a secret for reload number %d", ++count);
    snprintf(text, sizeof(text), "%s[reload]\nrights = read\nprefix = none\nsecret = %s\n", grants, secret);
    write_grants(rig, text);
    assert_int_equal(pst_node_reload(rig->node, fault), 0);
    for (int tries = 0; try_store(rig, secret, 1000, &store) < 0; tries++)
        assert_true(tries < 2000);
    penstock_close(store);
}

/* ---- each call ---- */

static int do_put(struct penstock *s, const char *key)
{
    return penstock_put(s, key, strlen(key), "value", 5);
}

static int do_put_large(struct penstock *s, const char *key)
{
    return penstock_put(s, key, strlen(key), large, sizeof(large));
}

static int do_get(struct penstock *s, const char *key)
{
    return penstock_get(s, key, strlen(key), large, sizeof(large), NULL);
}

static int do_get_wait(struct penstock *s, const char *key)
{
    return penstock_get_wait(s, key, strlen(key), large, sizeof(large), NULL, 20);
}

static int do_exists(struct penstock *s, const char *key)
{
    return penstock_exists(s, key, strlen(key));
}

static int do_delete(struct penstock *s, const char *key)
{
    return penstock_delete(s, key, strlen(key));
}

static int do_pin(struct penstock *s, const char *key)
{
    int r = penstock_pin(s, key, strlen(key), 0);

    return r ? r : penstock_unpin(s, key, strlen(key));
}

static int do_unpin(struct penstock *s, const char *key)
{
    return penstock_unpin(s, key, strlen(key));
}

static int do_reserve(struct penstock *s, const char *key)
{
    struct penstock_reservation reservation = {0};
    int r = penstock_reserve(s, key, strlen(key), 100, PENSTOCK_DEPTH_NONE, &reservation);

    if (r == 0)
        assert_int_equal(penstock_reservation_abort(s, key, strlen(key), &reservation), 0);
    return r;
}

static int do_stream(struct penstock *s, const char *key)
{
    struct penstock_stream *stream = NULL;
    struct penstock_op put = {0};
    int r;

    penstock_prep_put(&put, key, strlen(key), NULL, 0);
    r = penstock_stream_open(s, &put, &stream);
    if (r == 0)
        r = penstock_stream_write(stream, large, sizeof(large));
    if (r == 0)
        return penstock_stream_commit(stream, NULL);
    penstock_stream_abort(stream);
    return r;
}

static int do_commit(struct penstock *s, const char *key)
{
    struct penstock_op ops[2] = {0};

    penstock_prep_put(&ops[0], key, strlen(key), "value", 5);
    penstock_prep_put(&ops[1], "a/beside", 8, "value", 5);
    return penstock_commit(s, ops, 2);
}

static int do_check(struct penstock *s, const char *key)
{
    struct penstock_op op = {0};

    penstock_prep(&op, PENSTOCK_CHECK, key, strlen(key));
    op.flags = PENSTOCK_IF_GENERATION;
    return penstock_commit(s, &op, 1);
}

static int do_list(struct penstock *s, const char *key)
{
    const struct penstock_list_options range = {
        .size = sizeof(range), .prefix = key, .prefix_bytes = strlen(key)};
    struct penstock_list *list = NULL;
    int r = penstock_list_open(s, &range, &list);

    penstock_list_close(list);
    return r;
}

static int do_list_all(struct penstock *s, const char *key)
{
    struct penstock_list *list = NULL;
    const struct penstock_list_options range = {
        .size = sizeof(range), .start = key, .start_bytes = strlen(key)};
    int r = penstock_list_open(s, &range, &list); /* without an end */

    penstock_list_close(list);
    return r;
}

static int do_sweep(struct penstock *s, const char *key)
{
    return penstock_delete_prefix(s, key, strlen(key), NULL);
}

static int do_watch(struct penstock *s, const char *key)
{
    struct penstock_watch *watch = NULL;
    int r = penstock_watch_open(s, key, strlen(key), &watch);

    penstock_watch_close(watch);
    return r;
}

static int do_view(struct penstock *s, const char *key)
{
    struct penstock_view view = {0};
    int r = penstock_view(s, key, strlen(key), &view);

    if (r == 0)
        penstock_view_release(s, &view);
    return r;
}

enum { READ = 1, WRITE = 2 };

static const struct call {
    const char *name;
    int (*run)(struct penstock *store, const char *key);
    int right;
    int within; /* what it comes to on a key that is there; a view wants memory of the host */
} calls[] = {
    {"put", do_put, WRITE, 0},
    {"large put", do_put_large, WRITE, 0},
    {"get", do_get, READ, 0},
    {"get wait", do_get_wait, READ, 0},
    {"exists", do_exists, READ, 0},
    {"pin", do_pin, WRITE, 0},
    {"unpin", do_unpin, WRITE, -EINVAL},
    {"reserve", do_reserve, WRITE, PENSTOCK_EXISTS},
    {"stream", do_stream, WRITE, 0},
    {"commit", do_commit, WRITE, 0},
    {"check", do_check, READ, PENSTOCK_STALE},
    {"list", do_list, READ, 0},
    {"watch", do_watch, READ, 0},
    {"view", do_view, READ, -EOPNOTSUPP},
    {"sweep", do_sweep, WRITE, 0},
    {"delete", do_delete, WRITE, PENSTOCK_MISS},
};

static void expect_denied(const struct call *call, struct penstock *store, const char *key, const char *grant)
{
    char words[64];
    int r = call->run(store, key);

    if (r != -EACCES)
        fail_msg("%s of '%s' came to %d: %s", call->name, key, r, r < 0 ? penstock_error() : "");
    snprintf(words, sizeof(words), "grant '%s' has no right to %s", grant,
             call->right == READ ? "read" : "write");
    if (!strstr(penstock_error(), words))
        fail_msg("%s: '%s' does not say '%s'", call->name, penstock_error(), words);
}

static void calls_keep_to_their_keys(void **state)
{
    static const char *const outside[] = {"b/k", "b/none", "a", "a.", "a0", "../a/k", "a%2Fk", "A/k"};
    struct penstock *in;
    struct rig rig;

    (void)state;
    rig_open(&rig, ALL IN);
    in = store_of(&rig, SECRET("in"));
    assert_string_equal(penstock_lane(in), "tcp"); /* memory would show all */
    assert_string_equal(penstock_lane(rig.all), "posix");
    for (size_t i = 0; i < pst_count_of(calls); i++) {
        uint64_t before = forbidden(&rig);
        int r;

        assert_int_equal(do_put(rig.all, "b/k"), 0);
        assert_int_equal(do_put(rig.all, "a"), 0);
        for (size_t j = 0; j < pst_count_of(outside); j++)
            expect_denied(&calls[i], in, outside[j], "in");
        assert_true(forbidden(&rig) >= before + pst_count_of(outside));
        if (calls[i].run != do_delete)
            assert_int_equal(do_put(rig.all, "a/k"), 0);
        r = calls[i].run(in, "a/k");
        if (r != calls[i].within)
            fail_msg("%s in the grant came to %d: %s", calls[i].name, r, r < 0 ? penstock_error() : "");
    }
    assert_int_equal(do_exists(rig.all, "b/k"), 0); /* nothing took it away */
    assert_int_equal(do_exists(rig.all, "b/none"), PENSTOCK_MISS);
    assert_int_equal(do_list_all(in, "a/"), -EACCES);
    assert_int_equal(penstock_clear(in, NULL), -EACCES);
    assert_int_equal(penstock_delete_range(in, "a/b", 3, "a/c", 3, NULL), 0);
    assert_int_equal(penstock_delete_range(in, "a/b", 3, "b", 1, NULL), -EACCES);
    assert_int_equal(penstock_ping(in, NULL), 0);
    penstock_close(in);
    rig_close(&rig);
}

static void calls_need_their_right(void **state)
{
    struct penstock *reads, *puts;
    struct rig rig;

    (void)state;
    rig_open(&rig, ALL READS PUTS);
    reads = store_of(&rig, SECRET("reads"));
    puts = store_of(&rig, SECRET("puts"));
    for (size_t i = 0; i < pst_count_of(calls); i++) {
        bool writes = calls[i].right == WRITE;

        assert_int_equal(do_put(rig.all, "a/k"), 0);
        expect_denied(&calls[i], writes ? reads : puts, "a/k", writes ? "reads" : "puts");
        if (calls[i].run == do_delete)
            assert_int_equal(do_delete(rig.all, "a/k"), 0);
        assert_int_equal(calls[i].run(writes ? puts : reads, "a/k"), calls[i].within);
    }
    penstock_close(reads);
    penstock_close(puts);
    rig_close(&rig);
}

/* Each operation of a batch by itself; a commit as a whole, over both shards. */
static void batches_mix_and_commits_do_not(void **state)
{
    struct penstock_op ops[2 * KEYS] = {0};
    char keys[2 * KEYS][16];
    struct penstock *in;
    struct rig rig;

    (void)state;
    rig_open(&rig, ALL IN);
    in = store_of(&rig, SECRET("in"));
    for (int i = 0; i < 2 * KEYS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "%s/%d", i % 2 ? "b" : "a", i);
        penstock_prep_put(&ops[i], keys[i], strlen(keys[i]), i % 3 ? (const void *)large : "v",
                          i % 3 ? LARGE_BYTES : 1);
    }
    penstock_batch(in, ops, 2 * KEYS);
    for (int i = 0; i < 2 * KEYS; i++) {
        assert_int_equal(ops[i].result, i % 2 ? -EACCES : 0);
        assert_int_equal(ops[i].error_detail.denied & 0xff, i % 2 ? 2 : 0);
        assert_int_equal(do_exists(rig.all, keys[i]), i % 2 ? PENSTOCK_MISS : 0);
        penstock_prep_put(&ops[i], keys[i], strlen(keys[i]), "new", 3);
    }
    ops[0] = ops[1]; /* b/1 with the others of a/ */
    for (int i = 1; i < KEYS; i++)
        ops[i] = ops[2 * i];
    assert_int_equal(penstock_commit(in, ops, KEYS), -EACCES);
    assert_non_null(strstr(penstock_error(), "key 'b/1'"));
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(ops[i].result, -EACCES);
        assert_int_equal(ops[i].error_detail.denied & 0xff, i == 0 ? 2 : 0);
    }
    assert_int_equal(do_exists(rig.all, "b/1"), PENSTOCK_MISS);
    for (int i = 1; i < KEYS; i++) {
        uint64_t bytes = 0;

        assert_int_equal(
            penstock_get(rig.all, keys[2 * i], strlen(keys[2 * i]), large, sizeof(large), &bytes), 0);
        assert_int_not_equal(bytes, 3); /* nothing of it was done */
    }
    assert_int_equal(penstock_commit(in, ops + 1, KEYS - 1), 0);
    penstock_close(in);
    rig_close(&rig);
}

/* ---- what sessions of a grant share ---- */

static void sessions_share_what_the_grant_has(void **state)
{
    struct penstock_reservation held = {0}, more = {0};
    struct penstock *one, *two, *three = NULL;
    struct rig rig;

    (void)state;
    rig_open(&rig,
             ALL IN "connections = 2\npins = 3\nreservations = 2\npinned-bytes = 1M\nrequests = 1000\n");
    one = store_of(&rig, SECRET("in"));
    two = store_of(&rig, SECRET("in"));
    assert_int_equal(try_store(&rig, SECRET("in"), 300, &three), -EBUSY);
    assert_int_equal(do_put(one, "a/k"), 0);
    assert_int_equal(penstock_pin(one, "a/k", 3, 0), 0);
    assert_int_equal(penstock_pin(two, "a/k", 3, 0), 0);
    assert_int_equal(penstock_pin(two, "a/k", 3, 0), 0);
    assert_int_equal(penstock_pin(one, "a/k", 3, 0), -EDQUOT);
    assert_int_equal(penstock_unpin(two, "a/k", 3), 0);
    assert_int_equal(penstock_pin(one, "a/k", 3, 0), 0);

    assert_int_equal(penstock_reserve(one, "a/r", 3, 700000, PENSTOCK_DEPTH_NONE, &held), 0);
    assert_int_equal(penstock_reserve(two, "a/s", 3, 700000, PENSTOCK_DEPTH_NONE, &more), -EDQUOT);
    assert_int_equal(penstock_reserve(two, "a/s", 3, 100000, PENSTOCK_DEPTH_NONE, &more), 0);
    assert_int_equal(penstock_reserve(rig.all, "b/s", 3, 700000, PENSTOCK_DEPTH_NONE, &more), 0);
    assert_int_equal(do_reserve(two, "a/t"), -EDQUOT); /* a third one */
    penstock_close(one);                               /* and what it kept goes with it */
    for (int tries = 0; do_reserve(two, "a/t") != 0; tries++) {
        assert_true(tries < 10000);
        poll(NULL, 0, 1);
    }
    assert_int_equal(try_store(&rig, SECRET("in"), CONNECT_MS, &three), 0);
    penstock_close(two);
    penstock_close(three);
    rig_close(&rig);
}

/* ---- a new file ---- */

static void rights_change_with_the_next_request(void **state)
{
    struct penstock_watch *watch;
    struct penstock_event event;
    struct penstock *in;
    struct rig rig;
    int r;

    (void)state;
    rig_open(&rig, ALL IN);
    in = store_of(&rig, SECRET("in"));
    assert_int_equal(do_put(in, "a/k"), 0);
    assert_int_equal(penstock_watch_open(in, "a/", 2, &watch), 0);
    reload(&rig, ALL GRANT("in", "read", "prefix = a/k\nprefix = c/"));
    assert_int_equal(do_put(in, "a/k"), -EACCES);
    assert_int_equal(do_get(in, "a/k"), 0);
    assert_int_equal(do_get(in, "a/other"), -EACCES);
    assert_int_equal(do_get(in, "c/other"), PENSTOCK_MISS);
    assert_int_equal(do_put(rig.all, "a/secret"), 0);
    while ((r = penstock_watch_next(watch, CONNECT_MS, &event)) == 1)
        assert_true(event.what == PENSTOCK_EVENT_RESET || event.key_bytes != strlen("a/secret"));
    assert_int_equal(r, -EACCES);
    penstock_watch_close(watch);
    reload(&rig, ALL IN);
    assert_int_equal(do_put(in, "a/k"), 0);
    penstock_close(in);
    rig_close(&rig);
}

static uint64_t session_count(const struct rig *rig)
{
    struct penstock_stat stat = {.size = sizeof(stat)};

    assert_int_equal(penstock_stat(rig->all, &stat), 0);
    return stat.sessions;
}

static void secrets_rotate(void **state)
{
    static const char fresh[] = "another-secret-0123456789";
    struct penstock *in, *other = NULL;
    char fault[PST_FAULT_BYTES], both[512];
    struct rig rig;

    (void)state;
    rig_open(&rig, ALL IN);
    in = store_of(&rig, SECRET("in"));
    assert_int_equal(do_put(in, "a/k"), 0);
    snprintf(both, sizeof(both), "%s%ssecret = %s\n", ALL, IN, fresh);
    reload(&rig, both);
    other = store_of(&rig, fresh);
    assert_int_equal(do_get(other, "a/k"), 0);
    snprintf(both, sizeof(both), "%s[in]\nrights = read write\nprefix = a/\nsecret = %s\n", ALL, fresh);
    reload(&rig, both);
    assert_int_equal(do_get(in, "a/k"), 0); /* the session is the one of before */
    assert_int_equal(try_store(&rig, SECRET("in"), 500, &other), -EACCES);

    write_grants(&rig, "[in]\nrights = everything\n");
    assert_int_equal(pst_node_reload(rig.node, fault), -EINVAL);
    assert_non_null(strstr(fault, "grants:2: 'everything' is none of"));
    assert_int_equal(do_put(in, "a/k"), 0);
    reload(&rig, ALL); /* the grant is gone, and its sessions */
    for (int tries = 0; session_count(&rig) > 1; tries++) {
        assert_true(tries < 10000);
        poll(NULL, 0, 1);
    }
    assert_true(do_get(in, "a/k") < 0);
    penstock_close(in);
    penstock_close(other);
    rig_close(&rig);
}

/* Who could see all of the memory and may not any more, has to come again. */
static void memory_is_not_shown_any_more(void **state)
{
    struct penstock *in;
    struct rig rig;

    (void)state;
    rig_open(&rig, ALL GRANT("in", "read", "keys = all"));
    in = store_of(&rig, SECRET("in"));
    assert_int_equal(do_put(rig.all, "a/k"), 0);
    assert_int_equal(do_view(in, "a/k"), 0);
    assert_string_equal(penstock_lane(in), "posix");
    reload(&rig, ALL READS GRANT("in", "read", "prefix = a/"));
    for (int tries = 0; do_get(in, "a/k") != 0 || strcmp(penstock_lane(in), "tcp") != 0; tries++) {
        assert_true(tries < 10000);
        poll(NULL, 0, 1);
    }
    assert_int_equal(do_view(in, "a/k"), -EOPNOTSUPP);
    penstock_close(in);
    rig_close(&rig);
}

static void figures_are_the_operators(void **state)
{
    struct penstock *in;
    char text[60 << 10];
    struct rig rig;

    (void)state;
    rig_open(&rig, ALL IN);
    in = store_of(&rig, SECRET("in"));
    assert_int_equal(do_put(in, "b"), -EACCES);
    assert_int_equal(do_get(in, "b"), -EACCES);
    assert_int_equal(do_get(in, "b"), -EACCES);
    assert_int_equal(penstock_pool_stat(in, text, sizeof(text)), -EOPNOTSUPP);
    assert_int_equal(penstock_pool_stat(rig.all, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "grant.in.connections 1\n"));
    assert_non_null(strstr(text, "grant.in.refused_read 2\n"));
    assert_non_null(strstr(text, "grant.in.refused_write 1\n"));
    assert_non_null(strstr(text, "grant.in.refused_admin 0\n"));
    assert_non_null(strstr(text, "grant.all.refused_read 0\n"));
    penstock_close(in);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_keep_to_their_keys),
        cmocka_unit_test(calls_need_their_right),
        cmocka_unit_test(batches_mix_and_commits_do_not),
        cmocka_unit_test(sessions_share_what_the_grant_has),
        cmocka_unit_test(rights_change_with_the_next_request),
        cmocka_unit_test(secrets_rotate),
        cmocka_unit_test(memory_is_not_shown_any_more),
        cmocka_unit_test(figures_are_the_operators),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
