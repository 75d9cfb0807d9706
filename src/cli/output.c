/* SPDX-License-Identifier: Apache-2.0 */
/* output.c: whose standard output is, JSON text, the progress bar. */
#include "cli/cli.h"

#include "base/clock.h"

#include <fcntl.h>

/*
 * UCX took the stream called stdout for its log when it was loaded, before there was a main(). So the
 * commands' output moves to a stream of its own, and the descriptor that UCX writes to becomes that of
 * errors; unless the environment says where the log goes.
 */
void pst_output_begin(void)
{
    int fd = getenv("UCX_LOG_FILE") ? -1 : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    FILE *own = fd < 0 ? NULL : fdopen(fd, "w");

    pst_assert(stdout); /* nothing has been printed yet */
    if (own && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
        stdout = own;
    else if (own)
        fclose(own);
    else if (fd >= 0)
        close(fd);
}

void pst_json_string(FILE *out, const void *text, size_t len)
{
    const unsigned char *at = text;

    pst_assert(text || len == 0);
    fputc('"', out);
    for (size_t i = 0; i < len; i++) {
        if (at[i] == '"' || at[i] == '\\')
            fprintf(out, "\\%c", at[i]);
        else if (at[i] < 0x20 || at[i] >= 0x7f)
            fprintf(out, "\\u%04x", at[i]);
        else
            fputc(at[i], out);
    }
    fputc('"', out);
}

void pst_json_base64(FILE *out, const void *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = data;

    pst_assert(data || len == 0);
    fputc('"', out);
    for (; len > 0; at += 3, len -= pst_min(len, 3)) {
        unsigned word = (unsigned)at[0] << 16 | (len > 1 ? (unsigned)at[1] << 8 : 0) | (len > 2 ? at[2] : 0);

        fputc(digits[word >> 18], out);
        fputc(digits[word >> 12 & 63], out);
        fputc(len > 1 ? digits[word >> 6 & 63] : '=', out);
        fputc(len > 2 ? digits[word & 63] : '=', out);
    }
    fputc('"', out);
}

const char *pst_size_text(uint64_t bytes, char text[PST_SIZE_TEXT_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = (double)bytes;
    size_t unit = 0;

    for (; size >= 1023.995; size /= 1024) /* what would be printed as 1024 */
        unit++;
    pst_assert(unit < pst_count_of(units));
    snprintf(text, PST_SIZE_TEXT_BYTES, "%.*f %s", unit ? 2 : 0, size, units[unit]);
    return text;
}

const char *pst_cli_size(const struct pst_cli *cli, uint64_t bytes, char text[PST_SIZE_TEXT_BYTES])
{
    if (!cli->bytes)
        return pst_size_text(bytes, text);
    snprintf(text, PST_SIZE_TEXT_BYTES, "%llu", (unsigned long long)bytes);
    return text;
}

enum { BAR_CELLS = 30, REDRAW_NS = 100000000 };

void pst_progress_begin(struct pst_progress *p, const char *what, uint64_t total_bytes)
{
    pst_assert(what);
    pst_assert(!p->on); /* one bar at a time */
    *p = (struct pst_progress){.what = what, .total_bytes = total_bytes, .on = isatty(STDERR_FILENO)};
    p->begun_ns = p->on ? pst_now_ns() : 0;
}

static void draw_bar(const struct pst_progress *p, uint64_t bytes)
{
    uint64_t done = p->total_bytes ? pst_min(bytes, p->total_bytes) : 0;
    uint64_t cells = p->total_bytes ? done * BAR_CELLS / p->total_bytes : 0;

    fprintf(stderr, "\r%s [", p->what);
    for (uint64_t i = 0; i < BAR_CELLS; i++)
        fputc(i < cells ? '#' : '.', stderr);
    if (p->total_bytes)
        fprintf(stderr, "] %3d %%", (int)(done * 100 / p->total_bytes));
    else
        fputs("]", stderr);
}

/* The spaces at its end hide what a longer line has left. */
void pst_progress_show(struct pst_progress *p, uint64_t bytes)
{
    uint64_t now_ns = p->on ? pst_now_ns() : 0, spent_ns = now_ns - p->begun_ns;
    char size[PST_SIZE_TEXT_BYTES], rate[PST_SIZE_TEXT_BYTES];

    if (!p->on || (now_ns - p->shown_ns < REDRAW_NS && (bytes < p->total_bytes || !p->total_bytes)))
        return;
    pst_assert(now_ns >= p->shown_ns);
    pst_assert(p->what);
    p->shown_ns = now_ns;
    draw_bar(p, bytes);
    fprintf(stderr, "  %s  %s/s", pst_size_text(bytes, size),
            pst_size_text(spent_ns ? (uint64_t)((double)bytes * 1e9 / (double)spent_ns) : 0, rate));
    if (p->files)
        fprintf(stderr, "  %llu files", (unsigned long long)p->files);
    fputs("   ", stderr);
}

void pst_progress_end(struct pst_progress *p)
{
    if (p->on)
        fputc('\n', stderr);
    p->on = false;
}
