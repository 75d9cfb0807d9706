/* SPDX-License-Identifier: Apache-2.0 */
/* follow.c: keeps the store the same as another one, until it is stopped. */
#include "cli/cli.h"

#include <unistd.h>

static void print_line(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "penstock: %s\n", line);
}

/* A store that is not there is an error at first; later it may come back. */
static int try_source(const struct pst_cli *cli)
{
    const struct penstock_options options = {
        .size = sizeof(options), .secret_file = cli->secret_file, .timeout_ms = (uint32_t)cli->timeout};
    struct penstock *source = NULL;
    int r = penstock_open(cli->args[0], &options, &source);

    penstock_close(source);
    return r;
}

int pst_cmd_follow(struct pst_cli *cli)
{
    const char *prefix = cli->arg_count == 2 ? cli->args[1] : "";
    const struct penstock_follow_options options = {.size = sizeof(options),
                                                    .url = cli->args[0],
                                                    .secret_file = cli->secret_file,
                                                    .timeout_ms = (uint32_t)cli->timeout,
                                                    .prefix = prefix,
                                                    .prefix_bytes = strlen(prefix),
                                                    .log = print_line};
    struct penstock_follow *follow;
    int r = try_source(cli);

    if (r == 0)
        r = penstock_follow_open(cli->store, &options, &follow);
    if (r == 0) {
        for (;;)
            pause();
    }
    return pst_cli_fail(r);
}
