/* hello.c: one value in, and a look at it in place. Argument: a store's URL, such as mem: */
/* SPDX-License-Identifier: Apache-2.0 */
#include <penstock/penstock.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct penstock *store;
    struct penstock_view view;

    if (argc < 2 || penstock_open(argv[1], NULL, &store) || penstock_put(store, "answer", 6, "42\n", 3) ||
        penstock_view(store, "answer", 6, &view))
        return fprintf(stderr, "%s\n", penstock_error()), 1;
    fwrite(view.data, 1, view.bytes, stdout); /* in place: nothing was copied */
    penstock_view_release(store, &view);
    penstock_close(store);
    return 0;
}
