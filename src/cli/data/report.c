/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/data/report.h"

#include "base/clock.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>

void pst_report_line(const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    pst_printable(line);
    fprintf(stderr, "penstock: %s\n", line);
}

int pst_report_fault(int error, const char *text)
{
    pst_assert(error < 0);
    pst_assert(*text);
    pst_report_line("%s", text);
    return error == -ENOENT ? PST_EXIT_NOT_FOUND : pst_cli_exit_code(error);
}

void pst_report_moved(const struct pst_cli *cli, const char *what, const struct pst_arrival_result *result,
                      uint64_t begun_ns)
{
    double seconds = (double)(pst_now_ns() - begun_ns) / 1e9;

    if (result->left_out)
        pst_report_line("left out: %u name%s of sockets, pipes, devices or what has not arrived",
                        result->left_out, result->left_out == 1 ? "" : "s");
    if (cli->json)
        printf("{\"files\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"moved\": %" PRIu64
               ", \"matched\": %" PRIu64 ", \"seconds\": %.3f}\n",
               result->files, result->bytes, result->moved, result->matched, seconds);
    else
        printf("%s %" PRIu64 " files, %" PRIu64 " bytes in %.2f s, %.2f GB/s; %" PRIu64
               " bytes were sent, %" PRIu64 " taken over\n",
               what, result->files, result->bytes, seconds, (double)result->bytes / 1e9 / seconds,
               result->moved, result->matched);
}
