/* SPDX-License-Identifier: Apache-2.0 */
/* rsync.h: the real rsync as a child process. Main thread; a call blocks it. */
#ifndef PST_CLI_RSYNC_H
#define PST_CLI_RSYNC_H

#include "cli/cli.h"
#include "files/tree/arrival.h"

enum { PST_RSYNC_ARGS_MAX = 128 };

/* Words of its command line, which are copied. */
struct pst_rsync {
    char *args[PST_RSYNC_ARGS_MAX + 1];
    uint32_t count;
    bool failed;   /* without memory, or too many */
    bool is_local; /* of a run that failed: this host was at fault, such as its disk */
};

/* Begins with "rsync" and what every run takes. */
void pst_rsync_init(struct pst_rsync *rsync);
void pst_rsync_fini(struct pst_rsync *rsync);
void pst_rsync_add(struct pst_rsync *rsync, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "+PATTERN" and "-PATTERN" as the native transport means them: those with a slash are for a whole path. */
void pst_rsync_add_filters(struct pst_rsync *rsync, const struct pst_strings *filters);

/* Runs it, with a progress bar named @what. @password: what its daemon asks for, or "". Return: 0, and
 * *@result grows; else a text in @fault, which has rsync's own words, and -errno. */
int pst_rsync_run(struct pst_rsync *rsync, const char *what, const char *password,
                  struct pst_arrival_result *result, char fault[PST_FAULT_BYTES]);

#endif
