/* SPDX-License-Identifier: Apache-2.0 */
/* report.h: what a transfer of a tree prints at its end, whatever carried it. Main thread. */
#ifndef PST_CLI_REPORT_H
#define PST_CLI_REPORT_H

#include "cli/cli.h"
#include "files/tree/arrival.h"

/* Prints "penstock: ..." on standard error; control characters of keys and peers say nothing to a terminal.
 */
void pst_report_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a fault in this way. Return: the exit code that belongs to @error, an -errno. */
int pst_report_fault(int error, const char *text);
/* Prints figures of what was moved: as a line for people, or with --json as an object. */
void pst_report_moved(const struct pst_cli *cli, const char *what, const struct pst_arrival_result *result,
                      uint64_t begun_ns);

#endif
