/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grant.c: names of grants that nodes told this process, by small numbers: an operation has no room for a
 * name. A number means the same as long as the process lives; there are few names, and beyond the bound a
 * refusal is told without one.
 */
#include "call/call.h"

#include <pthread.h>

enum { NAMES_MAX = 255 };

static struct {
    pthread_mutex_t lock;
    uint32_t count;
    char names[NAMES_MAX][PST_BOOT_GRANT_BYTES_MAX + 1];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

uint32_t pst_grant_number(const char *name)
{
    uint32_t i = 0;

    if (!*name)
        return 0;
    pst_assert(strlen(name) <= PST_BOOT_GRANT_BYTES_MAX);
    pthread_mutex_lock(&known.lock);
    while (i < known.count && strcmp(known.names[i], name) != 0)
        i++;
    if (i == known.count && i < NAMES_MAX)
        memcpy(known.names[known.count++], name, strlen(name) + 1);
    pthread_mutex_unlock(&known.lock);
    return i < NAMES_MAX ? i + 1 : 0;
}

void pst_grant_name(uint32_t number, char name[PST_BOOT_GRANT_BYTES_MAX + 1])
{
    name[0] = '\0';
    pthread_mutex_lock(&known.lock);
    if (number >= 1 && number <= known.count)
        memcpy(name, known.names[number - 1], sizeof(known.names[0]));
    pthread_mutex_unlock(&known.lock);
}
