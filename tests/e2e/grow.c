/* SPDX-License-Identifier: Apache-2.0 */
/* grow.c: grow URL KEY: puts the key with one byte more each time, until it is killed. */
#include <penstock/penstock.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static char value[1 << 20];
    struct penstock *store;
    int r = argc == 3 ? penstock_open(argv[1], NULL, &store) : -1;

    for (uint64_t bytes = 1; r == 0; bytes = bytes % sizeof(value) + 1) {
        r = penstock_put(store, argv[2], strlen(argv[2]), value, bytes);
        if (bytes == 1) {
            puts("ready");
            fflush(stdout);
        }
    }
    return 1;
}
