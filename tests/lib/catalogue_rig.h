/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue_rig.h: a catalogue in a folder of its own, and what tests ask of it. */
#ifndef PST_TEST_CATALOGUE_RIG_H
#define PST_TEST_CATALOGUE_RIG_H

#include "lib/disk_rig.h"

#include "base/error.h"
#include "files/catalogue/catalogue.h"

enum { RIG_FILE_BYTES = 64 << 20 };
#define RIG_NOW 1700000000000ull

struct catalogue_rig {
    char *folder;
    char path[300];
    struct pst_catalogue *catalogue;
};

static inline void rig_open(struct catalogue_rig *rig, uint64_t bytes_max)
{
    int r = pst_catalogue_open(rig->path, bytes_max, &rig->catalogue);

    if (r < 0)
        fail_msg("%d: %s", r, pst_error_text());
}

static inline void rig_reopen(struct catalogue_rig *rig)
{
    rig->catalogue = pst_catalogue_close(rig->catalogue);
    rig_open(rig, RIG_FILE_BYTES);
}

static inline int rig_set_up(void **state)
{
    struct catalogue_rig *rig = calloc(1, sizeof(*rig));

    assert_non_null(rig);
    rig->folder = rig_folder();
    snprintf(rig->path, sizeof(rig->path), "%s/catalogue.db", rig->folder);
    rig_open(rig, RIG_FILE_BYTES);
    *state = rig;
    return 0;
}

static inline int rig_tear_down(void **state)
{
    struct catalogue_rig *rig = *state;

    pst_catalogue_close(rig->catalogue);
    rig_remove(rig->folder);
    free(rig);
    return 0;
}

#define CATALOGUE_TEST(test) cmocka_unit_test_setup_teardown(test, rig_set_up, rig_tear_down)

static inline struct pst_bytes rig_key(const char *key)
{
    return (struct pst_bytes){key, strlen(key)};
}

static inline int rig_publish(struct catalogue_rig *rig, const char *key, const char *ip, uint64_t now_ms)
{
    const struct pst_source source = {.ip = ip, .pod_name = "pod", .namespace = "ns", .src_path = "/src"};

    return pst_catalogue_publish(rig->catalogue, rig_key(key), &source, PST_LIFESPAN_UNSAID, NULL, now_ms);
}

static inline int rig_store(struct catalogue_rig *rig, const char *key, const char *ip)
{
    const struct pst_source source = {.ip = ip};

    return pst_catalogue_store(rig->catalogue, rig_key(key), &source, PST_LIFESPAN_UNSAID, NULL, RIG_NOW);
}

static inline bool rig_has(struct catalogue_rig *rig, const char *key)
{
    return pst_catalogue_get(rig->catalogue, rig_key(key), RIG_NOW, NULL, NULL, NULL) == 0;
}

static inline bool rig_print_key(void *arg, const struct pst_key_info *info)
{
    char *text = arg;

    snprintf(text + strlen(text), 1024 - strlen(text), "%.*s ", (int)info->key.len,
             (const char *)info->key.data);
    return true;
}

static inline void rig_assert_keys(struct catalogue_rig *rig, const char *prefix, const char *expected)
{
    char text[1024] = "";

    assert_int_equal(pst_catalogue_list(rig->catalogue, rig_key(prefix), rig_key(""), rig_print_key, text),
                     0);
    assert_string_equal(text, expected);
}

static inline void rig_assert_stats(struct catalogue_rig *rig, uint64_t keys, uint64_t sources,
                                    uint64_t store)
{
    struct pst_catalogue_stats stats;

    assert_int_equal(pst_catalogue_stats(rig->catalogue, &stats), 0);
    assert_int_equal(stats.key_count, keys);
    assert_int_equal(stats.source_count, sources);
    assert_int_equal(stats.store_key_count, store);
}

#endif
