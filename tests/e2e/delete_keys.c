/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delete_keys.c: deletes keys in one batch and prints what each comes to, a line of "RESULT GENERATION", for
 * the tests in Python.
 *
 *     delete_keys URL KEY...
 */
#include "base/base.h"

#include <penstock/penstock.h>

#include <inttypes.h>
#include <stdio.h>

enum { KEYS_MAX = 64 };

int main(int argc, char **argv)
{
    static struct penstock_op ops[KEYS_MAX];
    struct penstock *store;
    int count = argc - 2;

    pst_assert(count > 0 && count <= KEYS_MAX);
    if (penstock_open(argv[1], NULL, &store) < 0) {
        fprintf(stderr, "%s\n", penstock_error());
        return 1;
    }
    for (int i = 0; i < count; i++)
        penstock_prep(&ops[i], PENSTOCK_DELETE, argv[i + 2], strlen(argv[i + 2]));
    if (penstock_batch(store, ops, (size_t)count) < 0)
        return 1;
    for (int i = 0; i < count; i++)
        printf("%d %" PRIu64 "\n", ops[i].result, ops[i].generation);
    penstock_close(store);
    return 0;
}
