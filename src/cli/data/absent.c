/* SPDX-License-Identifier: Apache-2.0 */
/* absent.c: the commands of `penstock data` in a build without libcurl. */
#include "cli/cli.h"

static int data_absent(void)
{
    fprintf(stderr, "penstock: this build has no 'penstock data', as it was built without libcurl\n");
    return PST_EXIT_OTHER;
}

#define ABSENT(name)                                                                                         \
    int pst_cmd_data_##name(struct pst_cli *cli)                                                             \
    {                                                                                                        \
        (void)cli;                                                                                           \
        return data_absent();                                                                                \
    }
ABSENT(put)
ABSENT(get)
ABSENT(ls)
ABSENT(rm)
ABSENT(mkdir)
ABSENT(sync)
ABSENT(watch)
