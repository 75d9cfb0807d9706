/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/catalogue_rig.h"

/* ---- what is published is there ---- */

static void print_info(void *arg, const struct pst_key_info *info)
{
    char *text = arg;

    snprintf(text, 1024, "%.*s lifespan %d of '%s' in '%s', store '%s', %d sources: ", (int)info->key.len,
             (const char *)info->key.data, info->lifespan, info->service, info->namespace, info->store_ip,
             (int)info->source_count);
}

static void print_source(void *arg, const struct pst_source_info *info)
{
    const struct pst_source *s = &info->source;
    char *text = arg;

    snprintf(text + strlen(text), 1024 - strlen(text), "%s%s(%s,%s,%s,%s,+%d,%u) ", info->is_store ? "*" : "",
             s->ip, s->pod_name, s->namespace, s->src_path, s->data_type, (int)(info->published_ms - RIG_NOW),
             info->request_count);
}

static void assert_info(struct catalogue_rig *rig, const char *key, uint64_t now_ms, const char *expected)
{
    char text[1024] = "";

    assert_int_equal(pst_catalogue_get(rig->catalogue, rig_key(key), now_ms, print_info, print_source, text),
                     0);
    assert_string_equal(text, expected);
}

static void what_is_published_is_there(void **state)
{
    const struct pst_source full = {"10.0.0.2", "pod-b", "ns-b", "/data/b", "model"},
                            bare = {.ip = "10.0.0.1"};
    struct catalogue_rig *rig = *state;

    assert_int_equal(pst_catalogue_publish(rig->catalogue, rig_key("a/b"), &full, PST_LIFESPAN_RESOURCE,
                                           "svc", RIG_NOW + 1),
                     0);
    assert_int_equal(
        pst_catalogue_publish(rig->catalogue, rig_key("a/b"), &bare, PST_LIFESPAN_UNSAID, NULL, RIG_NOW + 2),
        0);
    assert_int_equal(pst_catalogue_store(rig->catalogue, rig_key("a/b"),
                                         &(struct pst_source){.ip = "10.0.0.9"}, PST_LIFESPAN_UNSAID, "",
                                         RIG_NOW + 3),
                     0);
    for (int start = 0; start < 2; start++) {
        assert_info(rig, "a/b", RIG_NOW,
                    "a/b lifespan 2 of 'svc' in 'ns-b', store '10.0.0.9', 3 sources: *10.0.0.9(,,,,+3,0) "
                    "10.0.0.1(,,,,+2,0) 10.0.0.2(pod-b,ns-b,/data/b,model,+1,0) ");
        rig_assert_stats(rig, 1, 3, 1);
        rig_reopen(rig);
    }
    assert_false(rig_has(rig, "a"));
    assert_false(rig_has(rig, "a/b/c"));
}

static void publishing_again_replaces(void **state)
{
    const struct pst_source first = {"1.1.1.1", "old", "ns", "/old", "x"},
                            again = {.ip = "1.1.1.1", .pod_name = "new"};
    struct catalogue_rig *rig = *state;

    assert_int_equal(
        pst_catalogue_publish(rig->catalogue, rig_key("k"), &first, PST_LIFESPAN_RESOURCE, "one", RIG_NOW),
        0);
    assert_int_equal(
        pst_catalogue_publish(rig->catalogue, rig_key("k"), &again, PST_LIFESPAN_CLUSTER, "two", RIG_NOW + 5),
        0);
    assert_info(rig, "k", RIG_NOW, "k lifespan 1 of 'two' in '', store '', 1 sources: 1.1.1.1(new,,,,+5,0) ");
    /* The store's own publish leaves it the store. */
    assert_int_equal(rig_store(rig, "k", "9.9.9.9"), 0);
    assert_int_equal(rig_publish(rig, "k", "9.9.9.9", RIG_NOW), 0);
    assert_int_equal(pst_catalogue_remove_source(rig->catalogue, rig_key("k"), "1.1.1.1"), 1);
    assert_info(rig, "k", RIG_NOW,
                "k lifespan 1 of 'two' in '', store '9.9.9.9', 1 sources: *9.9.9.9(pod,ns,/src,,+0,0) ");
    /* A store at another address takes the place of the one before. */
    assert_int_equal(rig_store(rig, "k", "8.8.8.8"), 0);
    assert_info(rig, "k", RIG_NOW,
                "k lifespan 1 of 'two' in '', store '8.8.8.8', 1 sources: *8.8.8.8(,,,,+0,0) ");
}

static void a_key_goes_with_its_last_source(void **state)
{
    struct catalogue_rig *rig = *state;

    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW), 0);
    assert_int_equal(rig_publish(rig, "k", "2", RIG_NOW), 0);
    assert_int_equal(pst_catalogue_remove_source(rig->catalogue, rig_key("k"), "3"), 0);
    assert_int_equal(pst_catalogue_remove_source(rig->catalogue, rig_key("none"), "1"), 0);
    assert_int_equal(pst_catalogue_remove_source(rig->catalogue, rig_key("k"), "1"), 1);
    assert_true(rig_has(rig, "k"));
    assert_int_equal(pst_catalogue_remove_source(rig->catalogue, rig_key("k"), "2"), 1);
    assert_false(rig_has(rig, "k"));
    rig_assert_stats(rig, 0, 0, 0);
}

static void texts_have_bounds(void **state)
{
    static char text[PST_SRC_PATH_BYTES_MAX + 2];
    struct catalogue_rig *rig = *state;
    const struct pst_source good = {.ip = "1"};
    const struct pst_source wrong[] = {
        {.ip = NULL},
        {.ip = ""},
        {.ip = text + sizeof(text) - 1 - (PST_IP_BYTES_MAX + 1)},
        {.ip = "1", .pod_name = text + sizeof(text) - 1 - (PST_NAME_BYTES_MAX + 1)},
        {.ip = "1", .namespace = text + sizeof(text) - 1 - (PST_NAME_BYTES_MAX + 1)},
        {.ip = "1", .src_path = text},
        {.ip = "1", .data_type = text + sizeof(text) - 1 - (PST_DATA_TYPE_BYTES_MAX + 1)},
    };
    const struct pst_source longest = {.ip = "1", .src_path = text + 1};
    uint64_t count;

    memset(text, 'x', sizeof(text) - 1);
    for (size_t i = 0; i < pst_count_of(wrong); i++)
        assert_int_equal(pst_catalogue_publish(rig->catalogue, rig_key("k"), &wrong[i], 0, NULL, RIG_NOW),
                         -EINVAL);
    assert_int_equal(pst_catalogue_publish(rig->catalogue, rig_key(""), &good, 0, NULL, RIG_NOW), -EINVAL);
    assert_int_equal(pst_catalogue_publish(rig->catalogue, rig_key(text), &good, 0, NULL, RIG_NOW), -EINVAL);
    assert_int_equal(pst_catalogue_publish(rig->catalogue, rig_key("k"), &good, 0, text, RIG_NOW), -EINVAL);
    assert_int_equal(pst_catalogue_service_cleanup(rig->catalogue, "", "ns", &count), -EINVAL);
    assert_int_equal(pst_catalogue_delete(rig->catalogue, rig_key(""), PST_DELETE_PREFIX, &count), -EINVAL);
    rig_assert_stats(rig, 0, 0, 0);
    assert_int_equal(pst_catalogue_publish(rig->catalogue, rig_key(text + 1), &longest, 0, NULL, RIG_NOW), 0);
    rig_reopen(rig);
    assert_true(rig_has(rig, text + 1));
    /* No key is beneath the longest one. */
    assert_int_equal(pst_catalogue_delete(rig->catalogue, rig_key(text + 1), PST_DELETE_RECURSIVE, &count),
                     0);
    assert_int_equal(count, 1);
}

/* ---- prefixes ---- */

static void put_all(struct catalogue_rig *rig, const char *const *keys)
{
    for (; *keys; keys++)
        assert_int_equal(rig_publish(rig, *keys, "1", RIG_NOW), 0);
}

static const char *const tree[] = {"a",     "a/b",       "a/b/c", "a/bc", "a0",       "ab",
                                   "a\xff", "a\xff\xff", "b",     "\xff", "\xff\xff", NULL};

static void a_prefix_is_of_bytes(void **state)
{
    struct catalogue_rig *rig = *state;

    put_all(rig, tree);
    rig_assert_keys(rig, "", "a a/b a/b/c a/bc a0 ab a\xff a\xff\xff b \xff \xff\xff ");
    rig_assert_keys(rig, "a", "a a/b a/b/c a/bc a0 ab a\xff a\xff\xff ");
    rig_assert_keys(rig, "a/", "a/b a/b/c a/bc ");
    rig_assert_keys(rig, "a/b", "a/b a/b/c a/bc ");
    rig_assert_keys(rig, "a\xff", "a\xff a\xff\xff ");
    rig_assert_keys(rig, "\xff", "\xff \xff\xff ");
    rig_assert_keys(rig, "\xff\xff", "\xff\xff ");
    rig_assert_keys(rig, "\xff\xff\xff", "");
    rig_assert_keys(rig, "c", "");
}

static bool stop_at_second(void *arg, const struct pst_key_info *info)
{
    rig_print_key(arg, info);
    return strchr(strchr(arg, ' ') + 1, ' ') == NULL;
}

static void a_listing_begins_and_stops_anywhere(void **state)
{
    struct catalogue_rig *rig = *state;
    char text[1024] = "";

    put_all(rig, tree);
    assert_int_equal(pst_catalogue_list(rig->catalogue, rig_key("a"), rig_key("a/b0"), stop_at_second, text),
                     0);
    assert_string_equal(text, "a/bc a0 ");
    text[0] = '\0';
    assert_int_equal(pst_catalogue_list(rig->catalogue, rig_key("a/"), rig_key("a"), stop_at_second, text),
                     0);
    assert_string_equal(text, "a/b a/b/c ");
    text[0] = '\0';
    assert_int_equal(pst_catalogue_list(rig->catalogue, rig_key("a/"), rig_key("b"), stop_at_second, text),
                     0);
    assert_string_equal(text, "");
}

static void assert_delete(struct catalogue_rig *rig, const char *key, int flags, uint64_t expected)
{
    uint64_t count = 1000;

    assert_int_equal(pst_catalogue_delete(rig->catalogue, rig_key(key), flags, &count), 0);
    assert_int_equal(count, expected);
}

static void deletions_are_counted(void **state)
{
    struct catalogue_rig *rig = *state;

    put_all(rig, tree);
    assert_delete(rig, "none", PST_DELETE_RECURSIVE, 0);
    assert_delete(rig, "a/b", 0, 1);
    rig_assert_keys(rig, "a/", "a/b/c a/bc ");
    put_all(rig, tree);
    assert_delete(rig, "a/b", PST_DELETE_RECURSIVE, 2);
    rig_assert_keys(rig, "a/", "a/bc ");
    put_all(rig, tree);
    assert_delete(rig, "a", PST_DELETE_RECURSIVE, 4); /* "a0" and "ab" are beside it */
    rig_assert_keys(rig, "a", "a0 ab a\xff a\xff\xff ");
    put_all(rig, tree);
    assert_delete(rig, "a/b", PST_DELETE_PREFIX, 2);
    rig_assert_keys(rig, "a/", "a/b/c ");
    put_all(rig, tree);
    assert_delete(rig, "a/b", PST_DELETE_PREFIX | PST_DELETE_RECURSIVE, 3);
    assert_delete(rig, "a\xff", PST_DELETE_PREFIX | PST_DELETE_RECURSIVE, 2);
    assert_delete(rig, "\xff", PST_DELETE_PREFIX, 2);
    rig_assert_keys(rig, "", "a a0 ab b ");
    rig_assert_stats(rig, 4, 4, 0);
}

static int renew(struct catalogue_rig *rig, const char *key, const char *ip)
{
    const struct pst_source source = {.ip = ip, .src_path = "/again"};

    return pst_catalogue_renew(rig->catalogue, rig_key(key), &source, PST_LIFESPAN_UNSAID, NULL, RIG_NOW);
}

static void what_was_deleted_is_not_renewed(void **state)
{
    struct catalogue_rig *rig = *state;

    assert_int_equal(renew(rig, "a/b", "1"),
                     1); /* an hour without a store makes it forget, nobody deleted it */
    assert_int_equal(rig_publish(rig, "a/c", "2", RIG_NOW), 0);
    assert_int_equal(rig_store(rig, "a/c", "9"), 0);
    assert_delete(rig, "a", PST_DELETE_RECURSIVE, 2);
    assert_int_equal(renew(rig, "a/b", "1"), 0);
    rig_reopen(rig);
    assert_int_equal(renew(rig, "a/b", "1"), 0);
    assert_int_equal(renew(rig, "a/c", "2"), 0);
    assert_int_equal(renew(rig, "a/c", "9"), 1); /* it was the store then */
    assert_false(rig_has(rig, "a/b"));
    /* Who publishes it means it. */
    assert_int_equal(rig_publish(rig, "a/b", "1", RIG_NOW), 0);
    assert_int_equal(renew(rig, "a/b", "1"), 1);
    /* A source that did not answer is no source for a while. */
    assert_int_equal(pst_catalogue_remove_source(rig->catalogue, rig_key("a/b"), "1"), 1);
    assert_int_equal(renew(rig, "a/b", "1"), 1);
    assert_delete(rig, "a/b", 0, 1);
    assert_int_equal(pst_catalogue_expire(rig->catalogue, RIG_NOW + PST_WITHDRAWN_LIFE_MS - 1), 1);
    assert_int_equal(renew(rig, "a/b", "1"), 0);
    assert_int_equal(pst_catalogue_expire(rig->catalogue, RIG_NOW + PST_WITHDRAWN_LIFE_MS), 0);
    assert_int_equal(renew(rig, "a/b", "1"), 1);
}

static void a_service_takes_its_keys_along(void **state)
{
    const struct pst_source here = {.ip = "1", .namespace = "ns"}, there = {.ip = "1", .namespace = "other"};
    struct catalogue_rig *rig = *state;
    struct pst_catalogue *c = rig->catalogue;
    uint64_t count = 0;

    assert_int_equal(pst_catalogue_publish(c, rig_key("a"), &here, PST_LIFESPAN_RESOURCE, "svc", RIG_NOW), 0);
    assert_int_equal(pst_catalogue_store(c, rig_key("b"), &here, PST_LIFESPAN_RESOURCE, "svc", RIG_NOW), 0);
    assert_int_equal(pst_catalogue_publish(c, rig_key("c"), &here, PST_LIFESPAN_CLUSTER, "svc", RIG_NOW), 0);
    assert_int_equal(pst_catalogue_publish(c, rig_key("d"), &there, PST_LIFESPAN_RESOURCE, "svc", RIG_NOW),
                     0);
    assert_int_equal(pst_catalogue_publish(c, rig_key("e"), &here, PST_LIFESPAN_RESOURCE, "svc2", RIG_NOW),
                     0);
    /* Somebody who has fetched it and offers it, too, says nothing of the service. */
    assert_int_equal(rig_publish(rig, "a", "2", RIG_NOW), 0);
    assert_int_equal(pst_catalogue_service_cleanup(c, "svc", "ns", &count), 0);
    assert_int_equal(count, 2);
    rig_assert_keys(rig, "", "c d e ");
    assert_int_equal(pst_catalogue_service_cleanup(c, "svc", "ns", &count), 0);
    assert_int_equal(count, 0);
}

/* ---- time ---- */

static void peers_expire_and_the_store_stays(void **state)
{
    struct catalogue_rig *rig = *state;
    uint64_t late = RIG_NOW + PST_SOURCE_LIFE_MS;

    assert_int_equal(rig_publish(rig, "both", "1", RIG_NOW), 0);
    assert_int_equal(rig_store(rig, "both", "9"), 0);
    assert_int_equal(rig_publish(rig, "peer", "1", RIG_NOW), 0);
    assert_int_equal(rig_publish(rig, "again", "1", RIG_NOW), 0);
    assert_int_equal(rig_publish(rig, "again", "1", RIG_NOW + 1), 0);
    assert_int_equal(pst_catalogue_expire(rig->catalogue, 0), 0);
    assert_int_equal(pst_catalogue_expire(rig->catalogue, late - 1), 0);
    assert_int_equal(pst_catalogue_get(rig->catalogue, rig_key("peer"), late - 1, NULL, NULL, NULL), 0);
    /* Nobody is sent there even before it is forgotten. */
    assert_int_equal(pst_catalogue_get(rig->catalogue, rig_key("peer"), late, NULL, NULL, NULL), -ENOENT);
    assert_info(rig, "both", late, "both lifespan 1 of '' in '', store '9', 1 sources: *9(,,,,+0,0) ");
    assert_int_equal(pst_catalogue_expire(rig->catalogue, late), 2);
    assert_int_equal(pst_catalogue_expire(rig->catalogue, late), 0);
    rig_assert_keys(rig, "", "again both ");
    rig_assert_stats(rig, 2, 2, 1);
}

/* ---- choices ---- */

static int choose(struct catalogue_rig *rig, uint64_t now_ms, const char *exclude, uint64_t random,
                  struct pst_choice *out)
{
    return pst_catalogue_choose(rig->catalogue, rig_key("k"), now_ms, &(struct pst_asker){.ip = exclude},
                                random, out);
}

static void assert_chosen(struct catalogue_rig *rig, const char *exclude, uint64_t random, const char *ip,
                          uint32_t count)
{
    struct pst_choice out;

    assert_int_equal(choose(rig, RIG_NOW, exclude, random, &out), 0);
    assert_string_equal(out.ip, ip);
    assert_int_equal(out.request_count, count);
    assert_int_equal(out.saturated_count, 0);
}

static void the_idlest_peer_comes_first_then_the_store(void **state)
{
    struct catalogue_rig *rig = *state;
    struct pst_choice out;

    assert_int_equal(choose(rig, RIG_NOW, NULL, 0, &out), -ENOENT);
    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW), 0);
    assert_int_equal(rig_publish(rig, "k", "2", RIG_NOW), 0);
    assert_int_equal(rig_store(rig, "k", "9"), 0);
    assert_chosen(rig, NULL, 0, "1", 1);
    assert_chosen(rig, NULL, 1, "2", 1); /* the idlest one */
    assert_chosen(rig, NULL, 1, "2", 2); /* of equals by the number */
    assert_chosen(rig, NULL, 1, "1", 2);
    assert_chosen(rig, "1", 6, "2", 3);
    assert_int_equal(choose(rig, RIG_NOW, NULL, 0, &out), 0);
    assert_string_equal(out.ip, "1");
    assert_string_equal(out.pod_name, "pod");
    assert_string_equal(out.namespace, "ns");
    assert_string_equal(out.src_path, "/src");
    assert_false(out.is_store);
    for (uint32_t i = 2 * 3; i < 2 * PST_SOURCE_REQUESTS_MAX; i++)
        assert_int_equal(choose(rig, RIG_NOW, NULL, i, &out), 0);
    assert_chosen(rig, NULL, 0, "9", 1);
    assert_chosen(rig, NULL, 5, "9", 2);
    assert_int_equal(pst_catalogue_complete(rig->catalogue, rig_key("k"), "2"), 1);
    assert_int_equal(pst_catalogue_choose(rig->catalogue, rig_key("k"), RIG_NOW,
                                          &(struct pst_asker){.outside = true}, 0, &out),
                     0);
    assert_string_equal(out.ip, "9");
    assert_chosen(rig, NULL, 0, "2", PST_SOURCE_REQUESTS_MAX);
}

static void of_equals_a_near_one_is_chosen(void **state)
{
    struct catalogue_rig *rig = *state;

    assert_int_equal(rig_store(rig, "k", "10.0.1.1"), 0);
    assert_int_equal(rig_publish(rig, "k", "10.0.0.2", RIG_NOW), 0);
    assert_int_equal(rig_publish(rig, "k", "10.0.1.2", RIG_NOW), 0);
    assert_int_equal(rig_publish(rig, "k", "10.0.1.3", RIG_NOW), 0);
    assert_int_equal(rig_publish(rig, "k", "fd00:0:0:1::2", RIG_NOW), 0);
    assert_chosen(rig, "10.0.1.9", 0, "10.0.1.2", 1);
    assert_chosen(rig, "10.0.1.9", 1, "10.0.1.3", 1);
    assert_chosen(rig, "10.0.1.9", 0, "10.0.0.2", 1); /* the idlest all the same */
    assert_chosen(rig, "fd00:0:0:2::9", 0, "fd00:0:0:1::2", 1);
    assert_chosen(rig, "fd00:0:0:1::9", 3, "fd00:0:0:1::2", 2);
    assert_chosen(rig, "no address", 1, "10.0.1.2", 2);
}

static void who_asks_is_not_its_own_source(void **state)
{
    struct catalogue_rig *rig = *state;
    struct pst_choice out;

    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW), 0);
    assert_int_equal(choose(rig, RIG_NOW, "1", 0, &out), -ENOENT);
    assert_int_equal(rig_store(rig, "k", "9"), 0);
    assert_chosen(rig, "9", 0, "1", 1);
    assert_chosen(rig, "1", 0, "9", 1);
}

static void saturated_sources_are_named(void **state)
{
    struct catalogue_rig *rig = *state;
    struct pst_choice out;

    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW), 0);
    assert_int_equal(rig_store(rig, "k", "9"), 0);
    for (int i = 0; i < 2 * PST_SOURCE_REQUESTS_MAX; i++)
        assert_int_equal(choose(rig, RIG_NOW, NULL, 0, &out), 0);
    assert_int_equal(choose(rig, RIG_NOW, NULL, 0, &out), -EBUSY);
    assert_int_equal(out.saturated_count, 2);
    assert_string_equal(out.saturated[0], "1");
    assert_string_equal(out.saturated[1], "9");
    assert_string_equal(out.ip, "");
    /* A new peer is free, whatever the others are. */
    assert_int_equal(rig_publish(rig, "k", "2", RIG_NOW), 0);
    assert_chosen(rig, NULL, 0, "2", 1);
    /* The addresses have a bound, too. */
    for (int peer = 100; peer < 100 + PST_SATURATED_MAX + 5; peer++) {
        char ip[16];

        snprintf(ip, sizeof(ip), "%d", peer);
        assert_int_equal(rig_publish(rig, "k", ip, RIG_NOW), 0);
    }
    while (choose(rig, RIG_NOW, NULL, 7, &out) == 0)
        ;
    assert_int_equal(out.saturated_count, PST_SATURATED_MAX);
}

static void a_clock_that_is_set_back_holds_no_requests(void **state)
{
    struct catalogue_rig *rig = *state;
    uint64_t ahead = RIG_NOW + 1000 * (uint64_t)PST_REQUEST_LIFE_MS;
    struct pst_choice out;

    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW), 0);
    for (int i = 0; i < PST_SOURCE_REQUESTS_MAX; i++)
        assert_int_equal(choose(rig, RIG_NOW + i, NULL, 0, &out), 0);
    assert_int_equal(choose(rig, RIG_NOW - 1, NULL, 0, &out), -EBUSY); /* a little is no matter */
    assert_int_equal(rig_publish(rig, "k", "1", ahead), 0);
    for (int i = 0; i < PST_SOURCE_REQUESTS_MAX; i++)
        assert_int_equal(choose(rig, ahead, NULL, 0, &out), 0);
    assert_int_equal(choose(rig, ahead, NULL, 0, &out), -EBUSY);
    assert_int_equal(choose(rig, RIG_NOW, NULL, 0, &out), 0);
}

static void requests_end(void **state)
{
    struct catalogue_rig *rig = *state;
    struct pst_catalogue *c = rig->catalogue;
    struct pst_choice out;

    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW), 0);
    assert_int_equal(pst_catalogue_complete(c, rig_key("k"), "1"), 0);
    for (int i = 0; i < PST_SOURCE_REQUESTS_MAX; i++)
        assert_int_equal(choose(rig, RIG_NOW + i, NULL, 0, &out), 0);
    assert_int_equal(choose(rig, RIG_NOW + 100, NULL, 0, &out), -EBUSY);
    assert_int_equal(pst_catalogue_complete(c, rig_key("other"), "1"), 0);
    assert_int_equal(pst_catalogue_complete(c, rig_key("k"), "2"), 0);
    assert_int_equal(pst_catalogue_complete(c, rig_key("k"), "1"), 1); /* the one of RIG_NOW */
    assert_int_equal(choose(rig, RIG_NOW + 100, NULL, 0, &out), 0);
    assert_int_equal(choose(rig, RIG_NOW + PST_REQUEST_LIFE_MS, NULL, 0, &out), -EBUSY);
    assert_int_equal(choose(rig, RIG_NOW + PST_REQUEST_LIFE_MS + 1, NULL, 0, &out), 0);
    assert_int_equal(choose(rig, RIG_NOW + PST_REQUEST_LIFE_MS + 1, NULL, 0, &out), -EBUSY);
    assert_info(rig, "k", RIG_NOW + PST_REQUEST_LIFE_MS + 50,
                "k lifespan 1 of '' in '', store '', 1 sources: 1(pod,ns,/src,,+0,2) ");
    /* A source that comes back has none underway, and neither has any after a restart. */
    assert_int_equal(pst_catalogue_remove_source(c, rig_key("k"), "1"), 1);
    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW), 0);
    assert_chosen(rig, NULL, 0, "1", 1);
    rig_reopen(rig);
    assert_chosen(rig, NULL, 0, "1", 1);
}

static void an_expired_source_is_not_chosen(void **state)
{
    struct catalogue_rig *rig = *state;
    struct pst_choice out;

    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW), 0);
    assert_int_equal(choose(rig, RIG_NOW + PST_SOURCE_LIFE_MS, NULL, 0, &out), -ENOENT);
    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW + 1), 0);
    assert_int_equal(choose(rig, RIG_NOW + PST_SOURCE_LIFE_MS, NULL, 0, &out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CATALOGUE_TEST(what_is_published_is_there),
        CATALOGUE_TEST(publishing_again_replaces),
        CATALOGUE_TEST(a_key_goes_with_its_last_source),
        CATALOGUE_TEST(texts_have_bounds),
        CATALOGUE_TEST(a_prefix_is_of_bytes),
        CATALOGUE_TEST(a_listing_begins_and_stops_anywhere),
        CATALOGUE_TEST(deletions_are_counted),
        CATALOGUE_TEST(a_service_takes_its_keys_along),
        CATALOGUE_TEST(peers_expire_and_the_store_stays),
        CATALOGUE_TEST(what_was_deleted_is_not_renewed),
        CATALOGUE_TEST(the_idlest_peer_comes_first_then_the_store),
        CATALOGUE_TEST(of_equals_a_near_one_is_chosen),
        CATALOGUE_TEST(who_asks_is_not_its_own_source),
        CATALOGUE_TEST(saturated_sources_are_named),
        CATALOGUE_TEST(a_clock_that_is_set_back_holds_no_requests),
        CATALOGUE_TEST(requests_end),
        CATALOGUE_TEST(an_expired_source_is_not_chosen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
