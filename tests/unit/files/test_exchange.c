/* SPDX-License-Identifier: Apache-2.0 */
/* test_exchange.c: who is in an exchange, when its window closes, and how it ends. */
#include "lib/exchange_rig.h"

/* What a look has done. */
struct seen {
    uint32_t beats, silent;
    char last_silent[PST_IP_BYTES_MAX + 1];
};

static void see_beat(void *arg, struct pst_exchange_member *member)
{
    assert_non_null(member->owner);
    ((struct seen *)arg)->beats++;
}

static void see_silent(void *arg, struct pst_exchange_member *member)
{
    struct seen *seen = arg;

    seen->silent++;
    strcpy(seen->last_silent, member->ip);
}

static uint64_t look(struct pst_exchanges *all, uint64_t now_ms, struct seen *seen)
{
    struct seen none;

    *(seen ? seen : &none) = (struct seen){0};
    return pst_exchanges_look(all, now_ms, see_beat, see_silent, seen ? seen : &none);
}

static struct pst_exchange_member *join(struct pst_exchanges *all, const char *ip, uint32_t world_size,
                                        uint64_t timeout_ms, uint64_t now_ms)
{
    return rig_join(all, ip, "putter", "k", world_size, timeout_ms, now_ms);
}

static void it_closes_by_its_size(void **state)
{
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_member *one = join(all, "1", 3, 0, 0), *two = join(all, "2", 1, 0, 0), *three, *four;
    struct pst_exchange *exchange = one->exchange;

    (void)state;
    assert_ptr_equal(two->exchange, exchange);
    assert_int_equal(exchange->state, PST_EXCHANGE_WAITING);
    assert_int_equal(pst_exchange_complete(one, true), -EAGAIN);
    three = rig_join(all, "1", "getter", "k", 0, 0, 0);
    assert_int_equal(exchange->state, PST_EXCHANGE_CLOSED);
    assert_true(one->is_first && two->is_first && !three->is_first);
    assert_int_equal(exchange->putters, 2);
    assert_int_equal(exchange->getters, 1);
    assert_ptr_equal(pst_exchanges_find(all, PST_EXCHANGE_CLOSED), exchange);
    assert_int_equal(pst_exchange_complete(one, true), -EAGAIN);
    four = join(all, "1", 2, 0, 5); /* the name is another's now */
    assert_ptr_not_equal(four->exchange, exchange);
    assert_int_equal(exchange->number, 0);
    rig_join(all, "2", "getter", "k", 0, 0, 5);
    assert_int_equal(four->exchange->state, PST_EXCHANGE_CLOSED);
    assert_int_equal(four->exchange->number, 1);
    assert_ptr_equal(pst_exchanges_next(all, exchange), four->exchange);
    assert_null(pst_exchanges_next(all, four->exchange));
    pst_exchange_begin(exchange, 10);
    assert_int_equal(pst_exchange_complete(one, true), 0);
    assert_int_equal(pst_exchange_complete(one, true), -EALREADY);
    pst_exchange_leave(one); /* it has what it came for */
    assert_int_equal(pst_exchange_complete(two, true), 0);
    assert_int_equal(exchange->state, PST_EXCHANGE_READY);
    assert_int_equal(pst_exchange_complete(three, true), 0);
    assert_int_equal(exchange->state, PST_EXCHANGE_ENDED);
    assert_false(exchange->failed);
    assert_int_equal(pst_exchange_complete(three, false), 0); /* too late to be anything */
    assert_false(exchange->failed);
    assert_null(one->owner);
    pst_exchange_forget(exchange);
    assert_ptr_equal(pst_exchanges_next(all, NULL), four->exchange);
    pst_exchanges_close(all);
}

static void it_closes_by_its_time(void **state)
{
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_member *one = join(all, "1", 9, 2000, 1000);
    struct pst_exchange *exchange = one->exchange;

    (void)state;
    join(all, "2", 0, 1, 2000); /* the first one's window counts */
    assert_int_equal(look(all, 2999, NULL), 3000);
    assert_int_equal(exchange->state, PST_EXCHANGE_WAITING);
    assert_int_equal(look(all, 3000, NULL), UINT64_MAX);
    assert_int_equal(exchange->state, PST_EXCHANGE_CLOSED);
    /* A join finds that out, too. */
    one = join(all, "1", 0, 100, 4000);
    assert_ptr_not_equal(join(all, "2", 9, 0, 4100)->exchange, one->exchange);
    assert_int_equal(one->exchange->state, PST_EXCHANGE_CLOSED);
    pst_exchanges_close(all);
}

static void who_is_silent_is_taken_out(void **state)
{
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_member *one = join(all, "1", 9, 0, 0), *two = join(all, "2", 0, 0, 5000);
    struct pst_exchange *exchange = one->exchange;
    struct seen seen;

    (void)state;
    assert_int_equal(look(all, 9999, &seen), 10000);
    assert_int_equal(seen.beats, 0);
    assert_int_equal(look(all, 10000, &seen), 20000);
    assert_int_equal(seen.beats, 2);
    assert_int_equal(look(all, 19999, &seen), 20000);
    assert_int_equal(seen.beats, 0);
    for (uint64_t now_ms = 20000; now_ms < 70000; now_ms += 10000) {
        look(all, now_ms, &seen);
        assert_int_equal(seen.beats, 2);
    }
    pst_exchange_hear(one, 69999);
    assert_int_equal(look(all, 70000, &seen), 75000);
    assert_int_equal(seen.silent, 0);
    assert_int_equal(look(all, 75000, &seen), 80000);
    assert_int_equal(seen.silent, 1);
    assert_string_equal(seen.last_silent, "2");
    assert_int_equal(exchange->putters, 1);
    two = join(all, "2", 0, 0, 139999); /* it may come back */
    assert_ptr_equal(two->exchange, exchange);
    look(all, 139999, &seen);
    assert_string_equal(seen.last_silent, "1");
    pst_exchange_hear(two, 150000);
    assert_int_equal(look(all, 220000, &seen), UINT64_MAX);
    assert_int_equal(seen.silent, 1);
    assert_null(pst_exchanges_next(all, NULL)); /* with its last member it is gone */
    assert_int_equal(pst_exchanges_bytes(all), 0);
    pst_exchanges_close(all);
}

static void who_leaves_early_is_taken_out(void **state)
{
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_member *one = join(all, "1", 3, 0, 0), *other = join(all, "1", 0, 0, 0),
                               *two = join(all, "2", 0, 0, 0);
    struct pst_exchange *exchange = one->exchange;

    (void)state;
    assert_true(exchange->state == PST_EXCHANGE_CLOSED);
    pst_exchange_leave(two);
    assert_string_equal(exchange->fault, "pod 2 has left before the broadcast was complete");
    pst_exchange_forget(exchange);
    one = join(all, "1", 3, 0, 0);
    other = join(all, "1", 0, 0, 0);
    assert_false(other->is_first);
    pst_exchange_leave(one);
    assert_true(other->is_first);
    assert_int_equal(other->exchange->putters, 1);
    pst_exchange_leave(other);
    assert_null(pst_exchanges_next(all, NULL));
    assert_int_equal(pst_exchanges_bytes(all), 0);
    pst_exchanges_close(all);
}

static struct pst_exchange *begun(struct pst_exchanges *all, struct pst_exchange_member *members[3],
                                  uint64_t timeout_ms)
{
    for (uint32_t i = 0; i < 3; i++) {
        char ip[2] = {(char)('1' + i), 0};

        members[i] = join(all, ip, 3, timeout_ms, 0);
    }
    pst_exchange_begin(members[0]->exchange, 0);
    return members[0]->exchange;
}

static void one_failure_fails_all(void **state)
{
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_member *members[3];
    struct pst_exchange *exchange = begun(all, members, 0);

    (void)state;
    assert_int_equal(pst_exchange_complete(members[0], true), 0);
    assert_int_equal(pst_exchange_complete(members[1], false), 0);
    assert_true(exchange->state == PST_EXCHANGE_ENDED && exchange->failed);
    assert_string_equal(exchange->fault, "pod 2 could not complete the broadcast");
    pst_exchange_leave(members[1]);
    pst_exchange_leave(members[2]); /* the first fault stays */
    assert_string_equal(exchange->fault, "pod 2 could not complete the broadcast");
    pst_exchange_forget(exchange);
    exchange = begun(all, members, 0);
    pst_exchange_leave(members[2]);
    assert_string_equal(exchange->fault, "pod 3 has left before the broadcast was complete");
    pst_exchanges_close(all);
}

static void its_time_ends(void **state)
{
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_member *members[3];
    struct pst_exchange *exchange = begun(all, members, 0);

    (void)state;
    assert_int_equal(look(all, 1, NULL), PST_EXCHANGE_LIFE_MS);
    assert_int_equal(pst_exchange_complete(members[1], true), 0);
    assert_int_equal(look(all, PST_EXCHANGE_LIFE_MS - 1, NULL), PST_EXCHANGE_LIFE_MS); /* none is silent */
    assert_int_equal(look(all, PST_EXCHANGE_LIFE_MS, NULL), UINT64_MAX);
    assert_string_equal(exchange->fault,
                        "the broadcast's time is over, and these pods have not completed: 1, 3");
    exchange = begun(all, members, 500);
    assert_int_equal(look(all, 0, NULL), 500);
    look(all, 500, NULL);
    assert_true(exchange->failed);
    pst_exchanges_close(all);
}

static void a_fault_names_a_few(void **state)
{
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange *exchange = NULL;
    char ip[8];

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        snprintf(ip, sizeof(ip), "%u", i / 2);
        exchange = join(all, ip, 20, 0, 0)->exchange;
    }
    pst_exchange_begin(exchange, 0);
    look(all, PST_EXCHANGE_LIFE_MS, NULL);
    assert_non_null(strstr(exchange->fault, ": 0, 1, 2, 3, 4, 5, 6, 7 and others"));
    pst_exchanges_close(all);
}

/* ---- bounds ---- */

static const char *fault_of(struct pst_exchanges *all, const char *name, struct pst_exchange_joiner joiner)
{
    struct pst_exchange_member *member;
    const char *fault = NULL;
    size_t bytes = pst_exchanges_bytes(all);

    assert_true(pst_exchange_join(all, name, &joiner, 0, &member, &fault) < 0);
    assert_int_equal(pst_exchanges_bytes(all), bytes);
    return fault;
}

static void what_a_joiner_says_is_bounded(void **state)
{
    struct pst_exchanges *all = pst_exchanges_open();
    int64_t shape[PST_EXCHANGE_DIMENSIONS_MAX + 1] = {0, 1, -1};
    struct pst_exchange_tensor tensor = {"k", "k", "f", NULL, shape, 0};
    struct pst_exchange_joiner joiner = {
        .ip = "1", .world_size = 2, .tensors = &tensor, .tensor_count = 1, .owner = all};
    struct pst_exchange_member *member;
    static char text[PST_KEY_BYTES_MAX + 2];
    const char *fault;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    assert_non_null(strstr(fault_of(all, "", joiner), "name"));
    assert_non_null(strstr(fault_of(all, text, joiner), "name"));
#define WITH(member_, value, word)                                                                           \
    do {                                                                                                     \
        struct pst_exchange_joiner with = joiner;                                                            \
        with.member_ = value;                                                                                \
        assert_non_null(strstr(fault_of(all, "n/g", with), word));                                           \
    } while (0)
    WITH(ip, "", "pod_ip");
    WITH(ip, text, "pod_ip");
    WITH(pod_name, text, "pod_name");
    WITH(world_size, 0, "at least one");
    WITH(world_size, PST_EXCHANGE_MEMBERS_MAX + 1, "4096");
    WITH(timeout_ms, PST_EXCHANGE_TIMEOUT_MS_MAX + 1, "a day");
    WITH(tensor_count, PST_EXCHANGE_TENSORS_MAX + 1, "4096 tensors");
#define WRONG(member_, value, word)                                                                          \
    do {                                                                                                     \
        struct pst_exchange_tensor kept = tensor;                                                            \
        tensor.member_ = value;                                                                              \
        assert_non_null(strstr(fault_of(all, "n/g", joiner), word));                                         \
        tensor = kept;                                                                                       \
    } while (0)
    WRONG(key, "", "key");
    WRONG(key, text, "key");
    WRONG(dtype, "", "64 bytes");
    WRONG(dtype, text, "64 bytes");
    WRONG(handle, text, "4096 bytes");
    WRONG(dimension_count, PST_EXCHANGE_DIMENSIONS_MAX + 1, "16 dimensions");
    WRONG(dimension_count, 3, "below 0");
    tensor.dimension_count = 2;
    assert_int_equal(pst_exchange_join(all, "n/g", &joiner, 0, &member, &fault), 0);
    assert_int_equal(member->tensors[0].shape[1], 1);
    pst_exchanges_close(all);
}

static void groups_and_members_are_bounded(void **state)
{
    struct pst_exchange_joiner joiner = {.ip = "1", .timeout_ms = 1000};
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_member *member;
    const char *fault;
    char name[16];

    (void)state;
    joiner.owner = all;
    for (uint32_t i = 0; i < PST_EXCHANGES_MAX; i++) {
        snprintf(name, sizeof(name), "n/%u", i);
        assert_int_equal(pst_exchange_join(all, name, &joiner, 0, &member, &fault), 0);
    }
    assert_non_null(strstr(fault_of(all, "n/g", joiner), "1024"));
    for (uint32_t i = 1; i < PST_EXCHANGE_MEMBERS_MAX; i++)
        assert_int_equal(pst_exchange_join(all, "n/7", &joiner, 0, &member, &fault), 0);
    assert_non_null(strstr(fault_of(all, "n/7", joiner), "4096"));
    pst_exchanges_close(all);
}

static void memory_is_bounded(void **state)
{
    enum { HANDLE = 4000, TENSORS = 1000 };
    static struct pst_exchange_tensor tensors[TENSORS];
    struct pst_exchange_joiner joiner = {
        .ip = "1", .world_size = 4096, .tensors = tensors, .tensor_count = TENSORS};
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_member *member = NULL;
    char handle[HANDLE + 1];
    const char *fault;
    uint32_t count = 0;

    (void)state;
    joiner.owner = all;
    memset(handle, '1', HANDLE);
    handle[HANDLE] = 0;
    for (uint32_t i = 0; i < TENSORS; i++)
        tensors[i] = (struct pst_exchange_tensor){"k", "/k", "f", handle, NULL, 0};
    while (pst_exchange_join(all, "n/g", &joiner, 0, &member, &fault) == 0)
        assert_true(++count * HANDLE * TENSORS < PST_EXCHANGES_BYTES_MAX);
    assert_non_null(strstr(fault, "64 MiB"));
    assert_int_equal(count, 16);
    assert_string_equal(member->tensors[9].handle, handle);
    assert_string_equal(member->tensors[9].given_key, "/k");
    joiner.is_putter = true; /* whose handles are not kept */
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(pst_exchange_join(all, "n/g", &joiner, 0, &member, &fault), 0);
    assert_null(member->tensors[9].handle);
    pst_exchanges_close(all);
}

/* ---- anything, in any order ---- */

static void it_keeps_its_counts(const struct pst_exchange *exchange)
{
    uint32_t putters = 0, getters = 0, completed = 0;

    pst_list_each (it, &exchange->members) {
        const struct pst_exchange_member *member = pst_list_entry(it, struct pst_exchange_member, link);
        uint32_t before = 0;

        putters += member->is_putter;
        getters += !member->is_putter;
        completed += member->completed;
        assert_ptr_equal(member->exchange, exchange);
        assert_true(member->owner || exchange->state != PST_EXCHANGE_WAITING);
        for (struct pst_list *other = exchange->members.next; other != it; other = other->next)
            before += strcmp(pst_list_entry(other, struct pst_exchange_member, link)->ip, member->ip) == 0;
        assert_int_equal(member->is_first, before == 0);
    }
    assert_int_equal(exchange->putters, putters);
    assert_int_equal(exchange->getters, getters);
    assert_int_equal(exchange->completed, completed);
    assert_true(putters + getters > 0);
    assert_true(completed == 0 || exchange->state >= PST_EXCHANGE_READY);
    assert_true(exchange->failed ? exchange->fault != NULL : !exchange->fault);
    if (exchange->state == PST_EXCHANGE_ENDED && !exchange->failed)
        assert_int_equal(completed, putters + getters);
}

/* Some member with an owner, at random; NULL: the choice fell on none. */
static struct pst_exchange_member *some_member(struct pst_exchanges *all, unsigned *seed)
{
    struct pst_exchange *exchange = NULL;

    while ((exchange = pst_exchanges_next(all, exchange))) {
        pst_list_each (it, &exchange->members) {
            struct pst_exchange_member *member = pst_list_entry(it, struct pst_exchange_member, link);

            if (member->owner && rand_r(seed) % 4 == 0)
                return member;
        }
    }
    return NULL;
}

static void step(struct pst_exchanges *all, unsigned *seed, uint64_t *now_ms)
{
    static const char *const ips[] = {"1", "2", "3", "4", "5"}, *const roles[] = {"putter", "getter"};
    struct pst_exchange_member *member = some_member(all, seed);
    struct pst_exchange *exchange;
    int choice = rand_r(seed) % 8;

    *now_ms += (uint64_t)(rand_r(seed) % 3000);
    if (choice < 2)
        rig_join(all, ips[rand_r(seed) % 5], roles[rand_r(seed) % 2], "a b", 2 + (uint32_t)(rand_r(seed) % 6),
                 rand_r(seed) % 2 ? 20000 : 0, *now_ms);
    else if (choice == 2 && member)
        pst_exchange_leave(member);
    else if (choice == 3 && member)
        pst_exchange_hear(member, *now_ms);
    else if (choice == 4 && (exchange = pst_exchanges_find(all, PST_EXCHANGE_CLOSED)))
        pst_exchange_begin(exchange, *now_ms);
    else if (choice == 5 && (exchange = pst_exchanges_find(all, PST_EXCHANGE_ENDED)))
        pst_exchange_forget(exchange);
    else if (choice == 6)
        assert_true(look(all, *now_ms, NULL) > *now_ms);
    else if (choice == 7 && member)
        pst_exchange_complete(member, rand_r(seed) % 16 > 0);
}

static void whatever_comes_it_agrees_with_itself(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (int round = 0; round < 200; round++) {
        struct pst_exchanges *all = pst_exchanges_open();
        uint64_t now_ms = 0;

        for (int i = 0; i < 300; i++) {
            struct pst_exchange *exchange = NULL;
            size_t bytes = 0;

            step(all, &seed, &now_ms);
            while ((exchange = pst_exchanges_next(all, exchange))) {
                it_keeps_its_counts(exchange);
                bytes += exchange->bytes;
                pst_list_each (it, &exchange->members)
                    bytes += pst_list_entry(it, struct pst_exchange_member, link)->bytes;
            }
            assert_int_equal(pst_exchanges_bytes(all), bytes);
        }
        pst_exchanges_close(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_closes_by_its_size),
        cmocka_unit_test(it_closes_by_its_time),
        cmocka_unit_test(who_is_silent_is_taken_out),
        cmocka_unit_test(who_leaves_early_is_taken_out),
        cmocka_unit_test(one_failure_fails_all),
        cmocka_unit_test(its_time_ends),
        cmocka_unit_test(a_fault_names_a_few),
        cmocka_unit_test(what_a_joiner_says_is_bounded),
        cmocka_unit_test(groups_and_members_are_bounded),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(whatever_comes_it_agrees_with_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
