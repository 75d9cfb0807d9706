/* SPDX-License-Identifier: Apache-2.0 */
/*
 * native.h: one tree between a path of this host and a data store's port for trees, as `penstock tree` and
 * `penstock data` move it. Main thread; a call blocks it.
 */
#ifndef PST_CLI_NATIVE_H
#define PST_CLI_NATIVE_H

#include "cli/cli.h"
#include "files/carry/carry.h"

#include <limits.h>

/* A positive outcome: nobody listens at the port, or it cannot be reached. */
enum { PST_NATIVE_UNREACHED = 1 };

/* All of it is borrowed during a call. */
struct pst_native {
    const char *host;
    uint16_t port;
    uint32_t timeout_ms; /* of connecting */
    bool puts;           /* from here to there */
    const char *local;
    const char *name;                  /* NAMESPACE/KEY */
    uint32_t flags;                    /* enum pst_arrival_flags */
    const struct pst_strings *filters; /* "+PATTERN" and "-PATTERN" */
    struct pst_bytes token;
};

/* What --force and --in-place ask for: enum pst_arrival_flags. */
uint32_t pst_native_flags(const struct pst_cli *cli);
/* Return: 0, or PST_EXIT_USAGE: a filter that is none, and is printed. */
int pst_native_filters(const struct pst_strings *texts, struct pst_filter out[PST_STRINGS_MAX]);
/* The folder that @path lies in, and its last part in @leaf. Return: a descriptor, or -errno with a text in
 * @fault. */
int pst_native_folder(const char *path, char leaf[NAME_MAX + 1], char fault[PST_FAULT_BYTES]);
/* Shows progress of a transfer on a struct pst_progress. */
void pst_native_progress(void *bar, uint64_t bytes, uint64_t bytes_of_all);
/* Moves it, with a progress bar. The filters have been checked. Return: 0 and *@result, else a text in @fault
 * and PST_NATIVE_UNREACHED or -errno. */
int pst_native_run(const struct pst_native *native, struct pst_arrival_result *result,
                   char fault[PST_FAULT_BYTES]);

#endif
