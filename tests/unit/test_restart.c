#include "engine.h"

#include "wire/route.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Stores that begin with what another left in the arenas: one that was closed, or killed in the midst of its
 * work. */

enum { PAGE_BYTES = 64 << 10, PAGES = 256 };

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/pst-test-XXXXXX" : "/tmp/pst-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_files(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -f '%s'/*", folder);
    return system(command);
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static int try_open(struct engine *e, uint32_t shards, const char **fault)
{
    const struct pst_prefix_number quota = {.prefix = bytes_of("c"), .number = PAGE_BYTES * PAGES};
    const char *prefix = "c";
    struct pst_store_options options = {
        .arenas = {.bytes = PAGE_BYTES * PAGES,
                   .page_bytes = PAGE_BYTES,
                   .arena_bytes = PAGE_BYTES * PAGES / 2,
                   .folder = folder,
                   .name = "n"},
        .shard_count = shards,
        .watermark_percent = 100,
        .cache_prefixes = &prefix,
        .cache_prefix_count = 1,
        .policy = "lru",
        .quotas = &quota,
        .quota_count = 1,
    };
    int r = pst_store_open(&options, &e->store, fault);

    if (r == 0) {
        e->shard = pst_store_shard(e->store, 0);
        e->now_ns = pst_now_ns();
    }
    return r;
}

static void open_kept(struct engine *e, uint32_t shards)
{
    const char *fault = "";

    if (try_open(e, shards, &fault) < 0)
        fail_msg("%s", fault);
}

static void reopen(struct engine *e, uint32_t shards)
{
    engine_close(e);
    open_kept(e, shards);
    assert_true(pst_store_restored(e->store)->taken_up);
}

static struct pst_shard *shard_of(const struct engine *e, const char *key)
{
    return pst_store_shard(e->store, pst_route_shard(bytes_of(key), pst_store_slot_seed(e->store),
                                                     pst_store_shard_count(e->store)));
}

/* A value's size by its number: of every shape, small ones more often. */
static uint64_t size_of(uint32_t seed)
{
    static const uint64_t sizes[] = {0,    1,     40,    900,   2047,  2048,  2049,
                                     5000, 30000, 33000, 65536, 70000, 150000};

    return sizes[seed % pst_count_of(sizes)];
}

static int put_key(struct engine *e, const char *key, uint32_t seed)
{
    return try_put(shard_of(e, key), key, seed, size_of(seed), e->now_ns);
}

static bool holds(const struct engine *e, const char *key, uint32_t seed)
{
    struct pst_shard *s = shard_of(e, key);
    struct pst_record *r = find(s, key);
    const uint8_t *want = pattern(seed);
    struct iovec piece;

    if (!r || r->value_bytes != size_of(seed))
        return false;
    for (uint64_t at = 0; pst_record_piece(s, r, at, r->value_bytes - at, &piece); at += piece.iov_len) {
        if (memcmp(piece.iov_base, want + at, piece.iov_len) != 0)
            return false;
    }
    return true;
}

static uint64_t keys_of(const struct engine *e)
{
    uint64_t keys = 0;

    for (uint32_t i = 0; i < pst_store_shard_count(e->store); i++)
        keys += shard_stat(pst_store_shard(e->store, i)).keys;
    return keys;
}

/* Every page comes back when all keys go: nothing was claimed twice, or for nothing. */
static void clear(struct engine *e)
{
    uint8_t buf[PST_SWEEP_BYTES_MAX];
    struct pst_range all = range_of("", "");

    for (uint32_t i = 0; i < pst_store_shard_count(e->store); i++) {
        struct pst_shard *s = pst_store_shard(e->store, i);

        while (shard_stat(s).keys > 0)
            assert_true(pst_shard_sweep(s, &all, false, e->now_ns, buf) > 0);
        assert_int_equal(shard_stat(s).value_bytes, 0);
        assert_int_equal(shard_stat(s).cache_keys, 0);
        assert_int_equal(shard_stat(s).slab_bytes, 0);
    }
    assert_int_equal(engine_pages_used(e), 0);
    assert_int_equal(e->store->extent_pages, 0);
    assert_int_equal(e->store->cache_pages, 0);
    assert_int_equal(e->store->quotas[0].bytes, 0);
}

/* ---- at rest ---- */

enum { KEYS = 120 };

static void put_all(struct engine *e)
{
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(put_key(e, key_name(i % 3 ? "k" : "c", i), i), 0);
}

static void expect_all(const struct engine *e)
{
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(holds(e, key_name(i % 3 ? "k" : "c", i), i));
    assert_int_equal(keys_of(e), KEYS);
    assert_int_equal(pst_store_restored(e->store)->keys, KEYS);
    assert_int_equal(pst_store_restored(e->store)->dropped, 0);
}

static void values_outlive_their_process(void **state)
{
    static const uint32_t shards[] = {3, 3, 1, 16, 5, 3};
    struct engine e;

    (void)state;
    open_kept(&e, 3);
    put_all(&e);
    for (size_t i = 0; i < pst_count_of(shards); i++) {
        reopen(&e, shards[i]);
        expect_all(&e);
        assert_true(i != 1 || pst_store_restored(e.store)->moved == 0);
        assert_true(i != 2 || pst_store_restored(e.store)->moved > 0);
    }
    /* It is a store like any other. */
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(put_key(&e, key_name(i % 3 ? "k" : "c", i), i + 1), 0);
    reopen(&e, 3);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(holds(&e, key_name(i % 3 ? "k" : "c", i), i + 1));
    clear(&e);
    reopen(&e, 3);
    assert_int_equal(keys_of(&e), 0);
    assert_int_equal(engine_pages_used(&e), 0);
    engine_close(&e);
}

static void what_went_stays_away(void **state)
{
    struct engine e;
    struct pst_put half;
    struct pst_reservation reservation;
    struct pst_answer answer;

    (void)state;
    open_kept(&e, 1);
    put_all(&e);
    for (uint32_t i = 0; i < KEYS; i += 2)
        assert_int_equal(delete_key(e.shard, key_name(i % 3 ? "k" : "c", i)), 0);
    assert_int_equal(pst_shard_ref(e.shard, find(e.shard, key_name("k", 11))), 0);
    assert_int_equal(delete_key(e.shard, key_name("k", 11)), 0); /* in transfer when the process ends */
    half = put_of(e.shard, "half", 100000);
    assert_int_equal(pst_shard_reserve(e.shard, &half, e.now_ns, &reservation, &answer), 0);
    assert_int_equal(pst_reservation_iov(e.shard, &reservation, &(struct iovec){0}, 0), -E2BIG);
    reopen(&e, 1);
    assert_int_equal(keys_of(&e), KEYS / 2 - 1);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(holds(&e, key_name(i % 3 ? "k" : "c", i), i), i % 2 == 1 && i != 11);
    assert_null(find(e.shard, "half"));
    clear(&e);
    engine_close(&e);
}

static void generations_go_on(void **state)
{
    struct engine e;
    uint64_t before;

    (void)state;
    open_kept(&e, 2);
    put(&e, "k", 1, 10);
    before = e.shard->generation += 1ull << 50; /* a clock that was set back since */
    put(&e, "k", 2, 10);
    assert_int_equal(delete_key(e.shard, "k"), 0);
    reopen(&e, 7);
    for (uint32_t i = 0; i < 7; i++)
        assert_true(pst_store_shard(e.store, i)->generation > before + 256);
    assert_int_equal(e.shard->generation & 255, 0);
    clear(&e);
    engine_close(&e);
}

static void recency_survives(void **state)
{
    struct engine e;
    uint64_t tail_ms;

    (void)state;
    open_kept(&e, 1);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(try_put(e.shard, key_name("c", i), i, i % 4 ? 100 : 70000, e.now_ns + i * SECOND_NS),
                         0);
    for (uint32_t i = 0; i < 20; i++)
        pst_shard_touch(e.shard, find(e.shard, key_name("c", 19 - i)), e.now_ns + (100 + i) * SECOND_NS);
    reopen(&e, 1);
    assert_int_equal(shard_stat(e.shard).cache_keys, 40);
    tail_ms = e.shard->tail_ms;
    assert_int_equal(try_put(e.shard, "cyoung", 1, 10, e.now_ns), 0);
    assert_true(e.shard->tail_ms == tail_ms); /* it is the youngest */
    for (uint32_t i = 0; i < 40; i++) {
        const char *oldest = key_name("c", i < 20 ? 20 + i : 39 - i);

        assert_non_null(find(e.shard, oldest));
        assert_true(pst_shard_evict(e.shard, e.now_ns));
        assert_null(find(e.shard, oldest));
    }
    clear(&e);
    engine_close(&e);
}

/* ---- between two steps ---- */

/* An overwrite that ended before the old record went: both are whole. */
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

/* ---- what is not as it was ---- */

static void damage_is_told_at_the_first_read(void **state)
{
    struct engine e;
    struct pst_put put;
    struct pst_answer answer;
    struct pst_record *r;
    struct iovec piece;

    (void)state;
    open_kept(&e, 1);
    for (uint32_t i = 0; i < 3; i++) {
        put = put_of(e.shard, key_name("k", i), i == 2 ? 1000 : 150000);
        put.flags = PST_PUT_CHECKSUM;
        put.value_crc = pst_crc32c(0, pattern(i), put.value_bytes);
        assert_int_equal(pst_shard_put(e.shard, &put, pattern(i), e.now_ns, &answer), 0);
        assert_int_equal(pst_record_verify(e.shard, find(e.shard, key_name("k", i))), 0);
    }
    assert_true(pst_record_piece(e.shard, find(e.shard, key_name("k", 1)), 149999, 1, &piece));
    *(uint8_t *)piece.iov_base ^= 1;
    assert_true(pst_record_piece(e.shard, find(e.shard, key_name("k", 2)), 500, 1, &piece));
    *(uint8_t *)piece.iov_base ^= 1;
    reopen(&e, 1);
    assert_int_equal(keys_of(&e), 2); /* a small value goes with its record */
    assert_null(find(e.shard, key_name("k", 2)));
    assert_int_equal(pst_record_verify(e.shard, find(e.shard, key_name("k", 0))), 0);
    r = find(e.shard, key_name("k", 1));
    assert_int_equal(pst_record_verify(e.shard, r), -EBADMSG);
    assert_int_equal(pst_record_verify(e.shard, r), -EBADMSG);
    assert_int_equal(put_key(&e, key_name("k", 1), 12), 0);
    assert_int_equal(pst_record_verify(e.shard, find(e.shard, key_name("k", 1))), 0);
    clear(&e);
    engine_close(&e);
}

/* Records with a right checksum whose pages others have, too, are outside, or are too few. */
static void memory_is_not_shared(void **state)
{
    (void)state;
    for (int fault = 0; fault < 6; fault++) {
        struct engine e;
        struct pst_record *r, *other;
        struct pst_external *x;

        open_kept(&e, 1);
        assert_int_equal(put_key(&e, "k0", 12) | put_key(&e, "k1", 11) | put_key(&e, "k2", 3), 0);
        r = find(e.shard, "k0");
        other = find(e.shard, "k1");
        x = pst_record_external(r);
        assert_true(x->run_count == 1 && x->tail_bytes > 0);
        if (fault == 0)
            pst_external_runs(x)->page = pst_external_runs(pst_record_external(other))->page;
        else if (fault == 1)
            pst_external_runs(x)->page = PAGES - 1;
        else if (fault == 2)
            pst_external_runs(x)->count = 1;
        else if (fault == 3)
            x->tail_offset = pst_record_external(other)->tail_offset;
        else if (fault == 4)
            x->tail_offset = ~0ull << 20;
        else
            pst_external_runs(x)->page = pst_offset_page(&e.store->arenas, pst_record_offset(e.shard, r));
        r->check = pst_record_check(r, e.store->check_seed, pst_record_offset(e.shard, r));
        reopen(&e, 1);
        assert_int_equal(pst_store_restored(e.store)->dropped, 1);
        assert_int_equal(keys_of(&e), 2);
        assert_true(holds(&e, "k1", 11) || fault == 0 || fault == 3); /* either of the two goes */
        assert_true(holds(&e, "k2", 3));
        clear(&e);
        engine_close(&e);
        remove_files(NULL);
    }
}

/* Values that fill the store cannot be moved: they stay where they are. */
static void shards_change_only_with_room(void **state)
{
    const char *fault = "";
    struct engine e;
    uint32_t keys = 0;

    (void)state;
    open_kept(&e, 2);
    for (uint32_t i = 0; keys == i; i++)
        keys += try_put(shard_of(&e, key_name("k", i)), key_name("k", i), i, 20000, e.now_ns) == 0;
    assert_true(keys > 500);
    engine_close(&e);
    assert_int_equal(try_open(&e, 5, &fault), -ENOSPC);
    assert_non_null(strstr(fault, "no room to move values to 5 shards: start with 2 as before"));
    open_kept(&e, 2);
    assert_int_equal(keys_of(&e), keys);
    for (uint32_t i = 0; i < keys; i++)
        assert_value(shard_of(&e, key_name("k", i)), key_name("k", i), i, 20000);
    for (uint32_t i = 0; i < keys / 2; i++)
        assert_int_equal(delete_key(shard_of(&e, key_name("k", i)), key_name("k", i)), 0);
    reopen(&e, 5);
    for (uint32_t i = keys / 2; i < keys; i++)
        assert_value(shard_of(&e, key_name("k", i)), key_name("k", i), i, 20000);
    clear(&e);
    engine_close(&e);
}

/* Cache values give way to those that are kept, and what stays is whole. */
static void cache_values_make_room(void **state)
{
    struct engine e;
    uint32_t there = 0, kept = 0;

    (void)state;
    open_kept(&e, 2);
    for (uint32_t i = 0; kept < 100; i++) {
        kept += try_put(shard_of(&e, key_name("k", i)), key_name("k", i), i, 20000, e.now_ns) == 0;
        for (uint32_t j = 6 * i; j < 6 * i + 6; j++)
            try_put(shard_of(&e, key_name("c", j)), key_name("c", j), j, 30000, e.now_ns);
    }
    assert_int_equal(engine_pages_used(&e), PAGES);
    reopen(&e, 7);
    assert_true(pst_store_restored(e.store)->moved > 100);
    for (uint32_t i = 0; i < 100; i++)
        assert_value(shard_of(&e, key_name("k", i)), key_name("k", i), i, 20000);
    for (uint32_t j = 0; j < 600; j++) {
        if (!find(shard_of(&e, key_name("c", j)), key_name("c", j)))
            continue;
        assert_value(shard_of(&e, key_name("c", j)), key_name("c", j), j, 30000);
        there++;
    }
    assert_int_equal(keys_of(&e), 100 + there);
    assert_true(there > 50);
    clear(&e);
    engine_close(&e);
}

/* ---- what clients look at ---- */

/* A client's view: the arenas as it maps them, and where in them the value lies. */
struct look {
    uint32_t seed;
    struct iovec pieces[4];
    int count;
};

static void look_at(const struct engine *e, uint8_t *const maps[2], const char *key, struct look *look)
{
    struct pst_record *r = find(e->shard, key);
    const struct pst_arenas *a = &e->store->arenas;

    assert_int_equal(pst_shard_ref(e->shard, r), 0);
    pst_record_viewed(e->shard, r, true);
    look->count = pst_record_iov(e->shard, r, 0, r->value_bytes, look->pieces, 4);
    assert_in_range(look->count, 1, 4);
    for (int i = 0; i < look->count; i++) {
        uint64_t offset = (uint64_t)((uint8_t *)look->pieces[i].iov_base - a->base);

        look->pieces[i].iov_base = maps[offset / a->stride] + offset % a->stride;
    }
}

static void expect_look(const struct look *look)
{
    const uint8_t *want = pattern(look->seed);

    for (int i = 0; i < look->count; i++) {
        assert_memory_equal(look->pieces[i].iov_base, want, look->pieces[i].iov_len);
        want += look->pieces[i].iov_len;
    }
}

static void fill_up(struct engine *e)
{
    for (uint32_t i = 0, full = 0; full < 20; i++)
        full += put_key(e, key_name("f", i), 3 + i % 10) != 0;
}

/* Whatever becomes of a value and of its node, who looks at it sees what it was. */
static void viewed_bytes_stay(void **state)
{
    struct look looks[] = {{.seed = 12}, {.seed = 2}, {.seed = 8}, {.seed = 10}};
    uint8_t *maps[2];
    struct engine e;

    (void)state;
    open_kept(&e, 1);
    for (uint32_t i = 0; i < 2; i++) {
        maps[i] =
            mmap(NULL, e.store->arenas.stride, PROT_READ, MAP_SHARED, e.store->arenas.fds_readonly[i], 0);
        assert_ptr_not_equal(maps[i], MAP_FAILED);
    }
    for (uint32_t i = 0; i < pst_count_of(looks); i++) {
        assert_int_equal(put_key(&e, key_name("k", i), looks[i].seed), 0);
        look_at(&e, maps, key_name("k", i), &looks[i]);
    }
    assert_int_equal(delete_key(e.shard, key_name("k", 0)), 0);
    assert_int_equal(put_key(&e, key_name("k", 1), 5), 0);
    for (uint32_t round = 0; round < 3; round++) {
        reopen(&e, 1 + round);
        assert_true(pst_store_restored(e.store)->held >= 4);
        if (round == 1)
            assert_int_equal(delete_key(shard_of(&e, key_name("k", 2)), key_name("k", 2)), 0);
        assert_true(round > 1 || holds(&e, key_name("k", 3), 10));
        if (round == 1)
            assert_int_equal(delete_key(shard_of(&e, key_name("k", 3)), key_name("k", 3)), 0);
        fill_up(&e);
        for (uint32_t i = 0; i < pst_count_of(looks); i++)
            expect_look(&looks[i]);
        for (uint32_t i = 0; keys_of(&e) > 10; i++)
            delete_key(shard_of(&e, key_name("f", i)), key_name("f", i));
    }
    for (uint32_t i = 0; i < 2; i++)
        munmap(maps[i], e.store->arenas.stride);
    reopen(&e, 2);
    assert_int_equal(pst_store_restored(e.store)->held, 0);
    clear(&e);
    engine_close(&e);
}

/* Who still looks at one value does not keep those that others looked at. */
static void pages_wait_for_their_own_views(void **state)
{
    struct look look = {.seed = 12};
    uint8_t *maps[2];
    struct engine e;
    uint64_t held;

    (void)state;
    open_kept(&e, 1);
    for (uint32_t i = 0; i < 2; i++)
        maps[i] =
            mmap(NULL, e.store->arenas.stride, PROT_READ, MAP_SHARED, e.store->arenas.fds_readonly[i], 0);
    assert_int_equal(put_key(&e, "k", look.seed), 0);
    look_at(&e, maps, "k", &look);
    reopen(&e, 1);
    held = pst_store_restored(e.store)->held;
    assert_in_range(held, 2, 3);
    assert_int_equal(put_key(&e, "other", 12), 0);
    assert_int_equal(pst_shard_ref(e.shard, find(e.shard, "other")), 0);
    pst_record_viewed(e.shard, find(e.shard, "other"), true); /* by one that ends with this process */
    for (int i = 0; i < 2; i++) {
        reopen(&e, 1);
        assert_int_equal(pst_store_restored(e.store)->held, held);
    }
    expect_look(&look);
    for (uint32_t i = 0; i < 2; i++)
        munmap(maps[i], e.store->arenas.stride);
    reopen(&e, 1);
    clear(&e);
    engine_close(&e);
}

static void views_end_in_order(void **state)
{
    struct engine e;
    struct pst_record *r;

    (void)state;
    open_kept(&e, 1);
    assert_int_equal(put_key(&e, "k", 12), 0);
    r = find(e.shard, "k");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pst_shard_ref(e.shard, r), 0);
        pst_record_viewed(e.shard, r, true);
    }
    assert_int_equal(pst_page_desc(&e.store->arenas, pst_external_runs(pst_record_external(r))->page)->views,
                     2);
    for (int i = 0; i < 2; i++) {
        pst_record_viewed(e.shard, r, false);
        pst_shard_unref(e.shard, r);
    }
    for (uint32_t page = 0; page < PAGES; page++)
        assert_int_equal(pst_page_desc(&e.store->arenas, page)->views, 0);
    clear(&e);
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
        cmocka_unit_test_teardown(values_outlive_their_process, remove_files),
        cmocka_unit_test_teardown(what_went_stays_away, remove_files),
        cmocka_unit_test_teardown(generations_go_on, remove_files),
        cmocka_unit_test_teardown(recency_survives, remove_files),
        cmocka_unit_test_teardown(ends_survive, remove_files),
        cmocka_unit_test_teardown(the_newer_of_two_counts, remove_files),
        cmocka_unit_test_teardown(one_of_two_alike_counts, remove_files),
        cmocka_unit_test_teardown(commits_come_whole, remove_files),
        cmocka_unit_test_teardown(a_commit_that_was_cut_short_is_finished, remove_files),
        cmocka_unit_test_teardown(damage_is_told_at_the_first_read, remove_files),
        cmocka_unit_test_teardown(memory_is_not_shared, remove_files),
        cmocka_unit_test_teardown(shards_change_only_with_room, remove_files),
        cmocka_unit_test_teardown(cache_values_make_room, remove_files),
        cmocka_unit_test_teardown(viewed_bytes_stay, remove_files),
        cmocka_unit_test_teardown(pages_wait_for_their_own_views, remove_files),
        cmocka_unit_test_teardown(views_end_in_order, remove_files),
        cmocka_unit_test_teardown(kills_lose_nothing, remove_files),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
