/* SPDX-License-Identifier: Apache-2.0 */
/* options_desk.h: a table with an option of each type, its settings, and a file to read them from. */
#ifndef PST_TEST_OPTIONS_DESK_H
#define PST_TEST_OPTIONS_DESK_H

#include "lib/cm.h"

#include "base/options.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A table with a row of each type; `case_` shows that a last '_' is nobody's business but the compiler's. */
#define ROWS(X)                                                                                              \
    X(STRING, place, "", 0, 0, "path", "where it lies")                                                      \
    X(STRING, mode, "calm", 0, 0, "", "how it goes")                                                         \
    X(SIZE, page_size, "2M", 65536, 1ull << 30, "bytes", "bytes in a page", "OTHERS_PAGE")                   \
    X(NUMBER, shards, "4", 1, 256, "threads", "how many shards", "OTHERS_SHARE", 100)                        \
    X(LIST, class_of, "", 0, 0, "PREFIX=CLASS", "classes of keys", "OTHERS_CLASS")                           \
    X(FLAG, pre_fault, "yes", 0, 0, "", "touch memory first")                                                \
    X(NUMBER, mood, "1", 0, 9, "[=N]", "whose value may be left out")                                        \
    X(NUMBER, case_, "7", 0, 9, "cases", "a word of C")

struct settings {
    ROWS(PST_OPTION_MEMBER)
};

#define PST_OPTION_SETTINGS struct settings
static const struct pst_options table = PST_OPTION_TABLE(ROWS);

struct desk {
    struct settings settings;
    char fault[PST_FAULT_BYTES];
    char folder[64];
    char path[128];
};

static inline int open_desk(void **state)
{
    struct desk *d = calloc(1, sizeof(*d));

    assert_int_equal(pst_options_preset(&table, &d->settings, d->fault), 0);
    snprintf(d->folder, sizeof(d->folder), "/tmp/pst_test_options.XXXXXX");
    if (!mkdtemp(d->folder))
        return -1;
    snprintf(d->path, sizeof(d->path), "%s/file", d->folder);
    *state = d;
    return 0;
}

static inline int close_desk(void **state)
{
    struct desk *d = *state;

    pst_options_free(&table, &d->settings);
    unlink(d->path);
    rmdir(d->folder);
    free(d);
    return 0;
}

static inline void assert_fault(const struct desk *d, const char *part)
{
    if (!strstr(d->fault, part))
        fail_msg("'%s' does not say '%s'", d->fault, part);
}

static inline void write_file(const struct desk *d, const char *text, size_t len, mode_t mode)
{
    FILE *file = fopen(d->path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(d->path, mode), 0);
}

#define DESK_TEST(f) cmocka_unit_test_setup_teardown(f, open_desk, close_desk)

#endif
