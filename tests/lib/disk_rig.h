/* SPDX-License-Identifier: Apache-2.0 */
/* disk_rig.h: a folder of its own for a test, and waiting for what a lane or a queue does. */
#ifndef PST_TEST_DISK_RIG_H
#define PST_TEST_DISK_RIG_H

#include "lib/cm.h"

#include "base/base.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

enum { RIG_WAIT_MS = 60000 };

/* A test whose state is the driver's name; the same test over each of them. */
#define OVER(driver, test)                                                                                   \
    {                                                                                                        \
        driver ": " #test, test, NULL, NULL, driver                                                          \
    }
#define OVER_EACH(test) OVER("io_uring", test), OVER("posix", test), OVER("simulated:seed=1", test)

static inline char *rig_folder(void)
{
    const char *base = getenv("TMPDIR");
    char *path = NULL;

    assert_true(asprintf(&path, "%s/penstock-disk-XXXXXX", base ? base : "/tmp") > 0);
    assert_non_null(mkdtemp(path));
    return path;
}

/* Valgrind does not see that a ring has filled memory. */
static inline char *rig_driver(char *name)
{
    return getenv("TEST_VALGRIND") && strcmp(name, "io_uring") == 0 ? "posix" : name;
}

static inline void rig_remove(char *folder)
{
    char command[512];

    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
    free(folder);
}

static inline void rig_sleep(int descriptor)
{
    struct pollfd p = {.fd = descriptor, .events = POLLIN};

    assert_int_equal(poll(&p, 1, RIG_WAIT_MS), 1);
}

/* The log's marker there gets another number behind @word, as one that was written before markers had a
 * checksum. */
static inline void rig_mark(const char *folder, const char *word, const char *number)
{
    char path[300], text[1024] = "", *at;
    FILE *f;

    snprintf(path, sizeof(path), "%s/penstock", folder);
    f = fopen(path, "r+");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
    at = strstr(text, "\ncheck ");
    if (at)
        strcpy(at + 1, "end\n");
    at = strstr(text, word);
    assert_non_null(at);
    at += strlen(word);
    rewind(f);
    assert_int_equal(ftruncate(fileno(f), 0), 0);
    fprintf(f, "%.*s%s%s", (int)(at - text), text, number, strchr(at, 10));
    assert_int_equal(fclose(f), 0);
}

/* The same bytes for the same seed. */
static inline void rig_fill(uint8_t *to, uint64_t bytes, uint64_t seed)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

    for (uint64_t i = 0; i < bytes; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        to[i] = (uint8_t)(x >> 56);
    }
}

#endif
