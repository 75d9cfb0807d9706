/* SPDX-License-Identifier: Apache-2.0 */
/* test_restart_cut.c: stores that begin with what another left when it was killed in the midst of its work.
 */
#include "lib/restart_rig.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- between two steps ---- */

/* What was to end goes on to end, at its time. */
static void ends_survive(void **state)
{
    static const char *const keys[] = {"soon", "late", "c/soon", "c/late"};
    struct engine e;

    (void)state;
    open_kept(&e, 1);
    for (uint32_t i = 0; i < 4; i++) {
        struct pst_shard *s = shard_of(&e, keys[i]);
        struct pst_put put = put_of(s, keys[i], size_of(i + 3));
        struct pst_answer answer;

        put.ttl_ms = i % 2 ? 90000000 : 3600000;
        assert_int_equal(pst_shard_put(s, &put, pattern(i + 3), e.now_ns, &answer), 0);
    }
    for (uint32_t shards = 1; shards <= 3; shards += 2) {
        reopen(&e, shards);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(holds(&e, keys[i], i + 3));
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_false(pst_shard_tick(pst_store_shard(e.store, i), e.now_ns + 3700 * SECOND_NS));
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(holds(&e, keys[i], i + 3), i % 2);
    for (uint32_t i = 0; i < 3; i++)
        assert_false(pst_shard_tick(pst_store_shard(e.store, i), e.now_ns + 100000 * SECOND_NS));
    assert_int_equal(engine_pages_used(&e), 0);
    engine_close(&e);
}

/* How many copies a pool shall have, of all sizes and with attributes. */
static void copies_asked_for_survive(void **state)
{
    static const char *const keys[] = {"a", "b", "c/a", "c/b"};
    struct engine e;

    (void)state;
    open_kept(&e, 1);
    for (uint32_t i = 0; i < 4; i++) {
        struct pst_shard *s = shard_of(&e, keys[i]);
        struct pst_put put = put_of(s, keys[i], size_of(i + 3));
        struct pst_answer answer;

        put.copies = (uint8_t)(i + 1);
        put.attrs = (struct pst_bytes){pattern(1), i * 85};
        assert_int_equal(pst_shard_put(s, &put, pattern(i + 3), e.now_ns, &answer), 0);
    }
    for (uint32_t shards = 1; shards <= 3; shards += 2) {
        uint64_t asked = 0;

        reopen(&e, shards);
        for (uint32_t i = 0; i < 4; i++) {
            const struct pst_record *r = find(shard_of(&e, keys[i]), keys[i]);

            assert_true(holds(&e, keys[i], i + 3));
            assert_int_equal(r->copies, i + 1);
            assert_int_equal(r->attr_bytes, i * 85);
        }
        for (uint32_t i = 0; i < shards; i++) {
            struct pst_shard_later later;

            pst_shard_stat_later(pst_store_shard(e.store, i), &later);
            asked += later.copies_asked;
        }
        assert_int_equal(asked, 3);
    }
    engine_close(&e);
}

static void the_newer_of_two_counts(void **state)
{
    (void)state;
    for (uint32_t shards = 1; shards <= 3; shards += 2) {
        struct engine e;
        struct pst_record *old;
        uint32_t check;

        open_kept(&e, 1);
        assert_int_equal(put_key(&e, "k", 12), 0);
        old = find(e.shard, "k");
        check = old->check;
        assert_int_equal(pst_shard_ref(e.shard, old), 0); /* its memory stays */
        assert_int_equal(put_key(&e, "k", 11), 0);
        old->check = check;
        for (int i = 0; i < 3; i++) { /* and the older one does not come back */
            reopen(&e, shards);
            assert_true(holds(&e, "k", 11));
            assert_int_equal(keys_of(&e), 1);
        }
        assert_int_equal(delete_key(shard_of(&e, "k"), "k"), 0);
        reopen(&e, shards);
        assert_int_equal(keys_of(&e), 0);
        assert_int_equal(engine_pages_used(&e), 0);
        engine_close(&e);
        remove_files(NULL);
    }
}

static void move(struct engine *e, const char *key, bool finish)
{
    struct pst_record *r = find(e->shard, key);
    uint64_t offset, from = pst_record_offset(e->shard, r);
    uint32_t check = r->check;
    uint64_t generation = r->generation;

    assert_int_equal(pst_slab_take(e->shard->slab, pst_record_bytes(r), &offset), 0);
    assert_int_equal(pst_slab_take(e->shard->slab, 16, &(uint64_t){0}), 0); /* keeps the page */
    pst_record_move(e->shard, r, offset, PST_TAIL_STAYS, e->shard->slab);
    if (!finish) {
        r = (struct pst_record *)(void *)(e->shard->base + from);
        r->generation = generation;
        r->check = check;
    }
}

static void one_of_two_alike_counts(void **state)
{
    struct engine e;

    (void)state;
    open_kept(&e, 1);
    put_all(&e);
    for (uint32_t i = 0; i < KEYS; i++)
        move(&e, key_name(i % 3 ? "k" : "c", i), i % 2);
    reopen(&e, 2);
    expect_all(&e);
    reopen(&e, 1);
    expect_all(&e);
    clear(&e);
    engine_close(&e);
}

enum { PARTS = 5 };

/* A commit that changes, makes and deletes keys, up to where every shard has prepared its part. */
static void prepare_commit(struct engine *e, struct pst_change changes[PARTS])
{
    static const char *const names[PARTS] = {"old", "fresh", "gone", "absent", "large"};

    for (uint32_t i = 0; i < PARTS; i++) {
        uint32_t seed = 100 + i;

        changes[i] = (struct pst_change){
            .kind = i == 2 || i == 3 ? PST_CHANGE_DELETE : PST_CHANGE_PUT,
            .put = put_of(shard_of(e, names[i]), names[i], i == 2 || i == 3 ? 0 : size_of(seed)),
            .value = pattern(seed),
        };
        assert_true(pst_changes_prepare(shard_of(e, names[i]), NULL, &changes[i], false, e->now_ns));
    }
}

static void expect_commit(const struct engine *e, bool done)
{
    assert_true(holds(e, "old", done ? 100 : 1));
    assert_int_equal(holds(e, "fresh", 101), done);
    assert_int_equal(holds(e, "gone", 2), !done);
    assert_true(holds(e, "large", done ? 104 : 12));
    assert_int_equal(keys_of(e), 3);
}

/* Ends at: 0 prepared, 1 decided, 2 decided and in part applied, 3 the words are noted but not written. */
static void commits_come_whole(void **state)
{
    (void)state;
    for (int point = 0; point < 4; point++) {
        struct pst_change changes[PARTS];
        uint32_t checks[PARTS] = {0};
        struct engine e;

        open_kept(&e, 4);
        assert_int_equal(put_key(&e, "old", 1) | put_key(&e, "gone", 2) | put_key(&e, "large", 12), 0);
        prepare_commit(&e, changes);
        for (uint32_t i = 0; i < PARTS; i++)
            checks[i] = changes[i].old ? changes[i].old->check : 0;
        if (point > 0)
            pst_changes_decide(e.store, changes, PARTS);
        if (point == 2)
            pst_changes_apply(shard_of(&e, "old"), &changes[0], e.now_ns);
        if (point == 3) {
            uint64_t words = 0;

            for (uint32_t i = 0; i < PARTS; i++) {
                words += (changes[i].fresh != NULL) + (changes[i].old != NULL);
                if (changes[i].fresh)
                    changes[i].fresh->check = 0;
                if (changes[i].old)
                    changes[i].old->check = checks[i];
            }
            atomic_store(&e.store->kept->mark,
                         words << 32 | pst_crc32c(e.store->check_seed, e.store->kept->words,
                                                  words * sizeof(e.store->kept->words[0])));
        }
        reopen(&e, 4);
        expect_commit(&e, point > 0);
        reopen(&e, 3);
        expect_commit(&e, point > 0);
        engine_close(&e);
        remove_files(NULL);
    }
}

/* Decides a commit over records of which the last cannot be written to. */
static _Noreturn void die_deciding(void)
{
    struct pst_change changes[PARTS];
    struct engine e;
    uintptr_t at;

    open_kept(&e, 4);
    prepare_commit(&e, changes);
    at = (uintptr_t)changes[PARTS - 1].fresh / 4096 * 4096;
    signal(SIGSEGV, SIG_DFL); /* a sanitizer would have its say */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    if (mprotect((void *)at, 4096, PROT_READ) == 0)
        pst_changes_decide(e.store, changes, PARTS);
    _exit(0);
}

/* The process ends between two of the words that make the commit: then it has happened. */
static void a_commit_that_was_cut_short_is_finished(void **state)
{
    struct engine e;
    pid_t child;
    int status;

    (void)state;
    open_kept(&e, 4);
    assert_int_equal(put_key(&e, "old", 1) | put_key(&e, "gone", 2) | put_key(&e, "large", 12), 0);
    engine_close(&e);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        die_deciding();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    open_kept(&e, 4);
    expect_commit(&e, true);
    reopen(&e, 2);
    expect_commit(&e, true);
    engine_close(&e);
}

/* ---- killed at any moment ---- */

enum { JOURNAL_KEYS = 150, ROUNDS = 100, GROUP = 6, NONE = 0, GONE = 1, FIRST_SEED = 2 };

/* What was acknowledged, and what is underway: of a key, or together of all keys of a group. */
struct journal {
    _Atomic uint32_t now[JOURNAL_KEYS], next[JOURNAL_KEYS];
    _Atomic uint32_t group; /* keys up to here are of one commit that is underway */
    _Atomic uint64_t operations;
};

static const char *journal_key(uint32_t i)
{
    return key_name(i % 5 == 4 ? "c" : "k", i);
}

static void act(struct engine *e, struct journal *j)
{
    uint32_t i = GROUP + (uint32_t)(random_next() % (JOURNAL_KEYS - GROUP));
    uint32_t seed = FIRST_SEED + (uint32_t)(random_next() % 50000);
    bool gone = random_next() % 4 == 0;
    int r;

    j->next[i] = gone ? GONE : seed;
    r = gone ? delete_key(shard_of(e, journal_key(i)), journal_key(i)) : put_key(e, journal_key(i), seed);
    if (gone ? r == PST_OK || r == PST_MISS : r == PST_OK)
        j->now[i] = j->next[i];
    j->next[i] = NONE;
    if (random_next() % 50 == 0)
        pst_shard_take_back(e->shard, 90);
}

static void act_together(struct engine *e, struct journal *j)
{
    struct pst_change changes[GROUP];

    for (uint32_t i = 0; i < GROUP; i++) {
        uint32_t seed = FIRST_SEED + (uint32_t)(random_next() % 50000);
        struct pst_shard *s = shard_of(e, journal_key(i));

        j->next[i] = random_next() % 4 == 0 ? GONE : seed;
        changes[i] = (struct pst_change){
            .kind = j->next[i] == GONE ? PST_CHANGE_DELETE : PST_CHANGE_PUT,
            .put = put_of(s, journal_key(i), j->next[i] == GONE ? 0 : size_of(seed)),
            .value = pattern(seed),
        };
        if (!pst_changes_prepare(s, NULL, &changes[i], false, e->now_ns)) { /* full */
            while (i-- > 0)
                pst_changes_undo(shard_of(e, journal_key(i)), &changes[i]);
            return;
        }
    }
    j->group = GROUP;
    pst_changes_decide(e->store, changes, GROUP);
    for (uint32_t i = 0; i < GROUP; i++)
        pst_changes_apply(shard_of(e, journal_key(i)), &changes[i], e->now_ns);
    for (uint32_t i = 0; i < GROUP; i++)
        j->now[i] = j->next[i];
    j->group = 0;
}

static _Noreturn void live(struct journal *j, uint32_t round)
{
    struct engine e;
    const char *fault;

    for (uint32_t i = 0; i < round * 977; i++)
        random_next();
    if (try_open(&e, 1 + round % 4, &fault) < 0)
        _exit(3);
    for (;; j->operations++) {
        e.now_ns += 1000000;
        if (random_next() % 8 == 0)
            act_together(&e, j);
        else
            act(&e, j);
    }
}

static bool is(const struct engine *e, const char *key, uint32_t what)
{
    return what <= GONE ? !find(shard_of(e, key), key) : holds(e, key, what);
}

static void compare(const struct engine *e, struct journal *j)
{
    uint32_t old = 0, fresh = 0;

    for (uint32_t i = 0; i < JOURNAL_KEYS; i++) {
        const char *key = journal_key(i);
        bool cache = key[0] == 'c' && !find(shard_of(e, key), key); /* may have been evicted */
        bool is_old = is(e, key, j->now[i]), is_fresh = j->next[i] != NONE && is(e, key, j->next[i]);

        if (!cache && !is_old && !is_fresh)
            fail_msg("%s is neither %u nor %u", key, j->now[i], j->next[i]);
        old += i < j->group && !cache && !is_fresh;
        fresh += i < j->group && !cache && !is_old;
        if (!is_old || cache)
            j->now[i] = is_fresh ? j->next[i] : GONE;
        if (i < GROUP && j->group == 0 && j->next[i] != NONE && !is_old)
            fail_msg("%s shows a commit that was not decided", key);
    }
    assert_true(old == 0 || fresh == 0);
    for (uint32_t i = 0; i < JOURNAL_KEYS; i++)
        j->next[i] = NONE;
    j->group = 0;
}

static void await_work(struct journal *j, pid_t child)
{
    uint64_t before = j->operations;

    for (int i = 0; j->operations == before; i++) {
        assert_true(i < 60000);
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
        usleep(1000);
    }
}

static void kills_lose_nothing(void **state)
{
    struct journal *j = mmap(NULL, sizeof(*j), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct engine e;

    (void)state;
    assert_ptr_not_equal(j, MAP_FAILED);
    pattern(0); /* once, not in every child */
    for (uint32_t round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        int status;

        assert_true(child >= 0);
        if (child == 0)
            live(j, round);
        if (round % 2) /* else it may be before it has opened the store */
            await_work(j, child);
        usleep((useconds_t)(random_next() % 8000));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        open_kept(&e, 1 + (round / 3) % 4);
        compare(&e, j);
        engine_close(&e);
    }
    assert_true(j->operations >= ROUNDS / 2);
    open_kept(&e, 2);
    compare(&e, j);
    clear(&e);
    engine_close(&e);
    munmap(j, sizeof(*j));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(copies_asked_for_survive, remove_files),
        cmocka_unit_test_teardown(ends_survive, remove_files),
        cmocka_unit_test_teardown(the_newer_of_two_counts, remove_files),
        cmocka_unit_test_teardown(one_of_two_alike_counts, remove_files),
        cmocka_unit_test_teardown(commits_come_whole, remove_files),
        cmocka_unit_test_teardown(a_commit_that_was_cut_short_is_finished, remove_files),
        cmocka_unit_test_teardown(kills_lose_nothing, remove_files),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
