/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c: lines of JSON as bytes. */
#include "agent/round/lines.h"

#include "base/clock.h"
#include "base/ms.h"

#include <poll.h>

/* ---- hearing ---- */

/* Takes the first line out of what has come. */
static int lines_take(struct round_lines *lines, char *end, struct pst_json **out)
{
    uint32_t bytes = (uint32_t)(end - lines->bytes);
    const char *fault = NULL;
    int r = pst_json_parse((struct pst_bytes){lines->bytes, bytes}, out, &fault);

    pst_assert(bytes < lines->used);
    pst_assert(lines->bytes[bytes] == '\n');
    lines->used -= bytes + 1;
    memmove(lines->bytes, end + 1, lines->used);
    if (r == 0 && !pst_json_is_object(*out)) {
        *out = pst_json_free(*out);
        r = -EBADMSG;
    }
    return r == -ENOMEM ? r : r < 0 ? -EBADMSG : 1;
}

int round_lines_hear(struct round_lines *lines, int fd, struct pst_json **out)
{
    for (;;) {
        char *end = memchr(lines->bytes, '\n', lines->used);
        ssize_t n;

        pst_assert(lines->used <= sizeof(lines->bytes));
        if (end)
            return lines_take(lines, end, out);
        if (lines->used == sizeof(lines->bytes))
            return -EBADMSG;
        n = read(fd, lines->bytes + lines->used, sizeof(lines->bytes) - lines->used);
        if (n == 0)
            return -ECONNRESET;
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        lines->used += (uint32_t)n;
        pst_assert(lines->used <= sizeof(lines->bytes));
    }
}

/* ---- saying ---- */

static int say_bytes(int fd, const char *text, size_t bytes)
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), ROUND_SAY_MS);
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    size_t done = 0;

    pst_assert(bytes > 0 && text[bytes - 1] == '\n');
    while (done < bytes) {
        ssize_t n = write(fd, text + done, bytes - done);
        uint64_t left_ms = pst_ms_left(until_ns, pst_now_ns());

        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
        if (done < bytes && (left_ms == 0 || poll(&ready, 1, (int)left_ms) == 0))
            return -ETIMEDOUT;
    }
    return 0;
}

int round_say(int fd, const struct pst_json *line)
{
    pst_cleanup_free char *text = line ? pst_json_print(line) : NULL;
    size_t bytes = text ? strlen(text) : 0;

    if (!text)
        return -ENOMEM;
    pst_assert(!memchr(text, '\n', bytes));
    text[bytes] = '\n'; /* in the place of its NUL */
    return say_bytes(fd, text, bytes + 1);
}

int round_say_text(int fd, const char *name, const char *text)
{
    struct pst_json *line = pst_json_new_object();
    int r = line ? 0 : -ENOMEM;

    if (r == 0 && name)
        r = pst_json_add_text(line, name, text);
    if (r == 0)
        r = round_say(fd, line);
    pst_json_free(line);
    return r;
}
