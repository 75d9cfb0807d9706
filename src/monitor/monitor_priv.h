/* SPDX-License-Identifier: Apache-2.0 */
/* monitor_priv.h: what the files of monitor/ share. */
#ifndef PST_MONITOR_PRIV_H
#define PST_MONITOR_PRIV_H

#include "http/json.h"
#include "monitor/monitor.h"
#include "web/web.h"

#include <penstock/penstock.h>

#include <stdatomic.h>
#include <stdio.h>

#define MONITOR_MAGIC 0x6d6f6e69u

enum {
    MONITOR_FIGURES_BYTES = 60 << 10, /* lines of a master, a member or of grants */
    MONITOR_SERIES_MAX = 2000,
    MONITOR_KEYS_MAX = 1000,
    MONITOR_KEYS_PRESET = 100,
};

struct pst_monitor {
    uint32_t magic;
    const struct pst_monitor_ops *ops;
    void *ctx;
    bool tells_keys;
    bool tells_umbp; /* metrics by mori's names, too */
    char address[320];
    struct pst_web *web;
    struct penstock *_Atomic store; /* NULL: its node is not there yet */
    _Atomic uint64_t scrapes, failures, dropped;
};

static inline struct pst_monitor *monitor_cast(void *arg)
{
    struct pst_monitor *monitor = arg;

    pst_assert(monitor && monitor->magic == MONITOR_MAGIC);
    return monitor;
}

/* ---- routes.c ---- */

/* Of struct pst_web_ops; the context is the monitor. */
void monitor_answer(void *ctx, const struct pst_web_request *request, struct pst_web_answer *answer);
/* The lines beside penstock_stat(), as a text that is the caller's; "": there are none. Return: 0 or -errno.
 */
int monitor_lines(struct pst_monitor *monitor, char **out);
void monitor_detail(struct pst_web_answer *answer, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- metrics.c ---- */

void monitor_metrics(struct pst_monitor *monitor, const struct pst_web_request *request,
                     struct pst_web_answer *answer);
/* The page, by @stat and the "name value" lines of @text. Return: 0 or -ENOMEM. */
int monitor_print(struct pst_monitor *monitor, const struct penstock_stat *stat, const char *text,
                  struct pst_web_answer *answer);

/* "value", with what a label may not have escaped. */
void monitor_print_quoted(FILE *to, struct pst_bytes value);

/* ---- umbp.c ---- */

/* Metrics by mori's names. @dropped: series that were too many. Return: 0 or -ENOMEM. */
int monitor_print_umbp(struct pst_monitor *monitor, FILE *to, uint64_t *dropped);

/* ---- store.c ---- */

void monitor_stats(struct pst_monitor *monitor, const struct pst_web_request *request,
                   struct pst_web_answer *answer);
void monitor_keys(struct pst_monitor *monitor, const struct pst_web_request *request,
                  struct pst_web_answer *answer);
/* The node has not told what was asked for. */
void monitor_no_answer(struct pst_web_answer *answer, int error);
/* Beyond 2^53 a reader of JSON has no integers. */
void monitor_add_count(struct pst_json *parent, const char *name, uint64_t value);

/* ---- pool.c ---- */

void monitor_nodes(struct pst_monitor *monitor, const struct pst_web_request *request,
                   struct pst_web_answer *answer);
void monitor_map(struct pst_monitor *monitor, const struct pst_web_request *request,
                 struct pst_web_answer *answer);

#endif
