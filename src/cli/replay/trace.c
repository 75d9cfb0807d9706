/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c: reading traces. The file is mapped, not copied; what is kept are 4 bytes a page that a request
 * names. */
#include "cli/replay/trace.h"

#include "base/hash.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NESTING_MAX = 16,
    NAMES_MIN = 1 << 12,
};

/* Names of pages and their numbers: open addressing. */
struct names {
    uint64_t *ids;
    uint32_t *numbers; /* 0: a free place; else the number + 1 */
    uint64_t room;     /* a power of two */
};

struct parser {
    const char *at, *end; /* of the line */
    const char *why;
    struct names names;
    struct pst_trace *trace;
    uint64_t page_room, request_room;
};

/* ---- numbers for names ---- */

static uint64_t place_of(const struct names *names, uint64_t id)
{
    uint64_t at = pst_hash64(&id, sizeof(id), 0) & (names->room - 1);

    while (names->numbers[at] && names->ids[at] != id)
        at = (at + 1) & (names->room - 1);
    return at;
}

static int names_grow(struct names *names)
{
    struct names larger = {.room = names->room ? 2 * names->room : NAMES_MIN};

    larger.ids = malloc(larger.room * sizeof(*larger.ids));
    larger.numbers = calloc(larger.room, sizeof(*larger.numbers));
    if (!larger.ids || !larger.numbers) {
        free(larger.ids);
        free(larger.numbers);
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < names->room; i++) {
        uint64_t at;

        if (!names->numbers[i])
            continue;
        at = place_of(&larger, names->ids[i]);
        larger.ids[at] = names->ids[i];
        larger.numbers[at] = names->numbers[i];
    }
    free(names->ids);
    free(names->numbers);
    *names = larger;
    return 0;
}

static int number_of(struct parser *p, uint64_t id, uint32_t *number)
{
    uint64_t at;

    if ((uint64_t)p->trace->unique_count * 2 >= p->names.room && names_grow(&p->names) < 0)
        return -ENOMEM;
    at = place_of(&p->names, id);
    if (!p->names.numbers[at]) {
        p->names.ids[at] = id;
        p->names.numbers[at] = ++p->trace->unique_count;
    }
    *number = p->names.numbers[at] - 1;
    return 0;
}

/* ---- JSON ---- */

static int fail(struct parser *p, const char *why)
{
    p->why = why;
    return -EINVAL;
}

static char peek(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
    return (char)(p->at < p->end ? *p->at : '\0');
}

static bool take(struct parser *p, char c)
{
    if (peek(p) != c)
        return false;
    p->at++;
    return true;
}

/* The text between the quotes, as it is written. */
static int take_string(struct parser *p, struct pst_bytes *out)
{
    const char *from;

    if (!take(p, '"'))
        return fail(p, "a string was to come");
    for (from = p->at; p->at < p->end && *p->at != '"'; p->at++)
        p->at += *p->at == '\\' && p->at + 1 < p->end;
    if (p->at == p->end)
        return fail(p, "a string without an end");
    *out = (struct pst_bytes){from, (size_t)(p->at++ - from)};
    return 0;
}

static int skip_word(struct parser *p)
{
    static const char *const words[] = {"true", "false", "null"};
    const char *from = p->at;

    for (size_t i = 0; i < pst_count_of(words); i++) {
        size_t len = strlen(words[i]);

        if ((size_t)(p->end - p->at) >= len && memcmp(p->at, words[i], len) == 0) {
            p->at += len;
            return 0;
        }
    }
    while (p->at < p->end && *p->at && strchr("+-.0123456789eE", *p->at))
        p->at++;
    return p->at > from ? 0 : fail(p, "no JSON value");
}

/* Any value. What is inside of it has to close in order, no more. */
static int skip_value(struct parser *p)
{
    char closing[NESTING_MAX];
    struct pst_bytes string;
    int depth = 0, r = 0;

    do {
        char c = peek(p);

        if (c == '{' || c == '[') {
            if (depth == NESTING_MAX)
                return fail(p, "nested too deeply");
            closing[depth++] = c == '{' ? '}' : ']';
            p->at++;
        } else if (depth && c == closing[depth - 1]) {
            depth--;
            p->at++;
        } else if (depth && (c == ',' || c == ':')) {
            p->at++;
        } else {
            r = c == '"' ? take_string(p, &string) : skip_word(p);
        }
    } while (r == 0 && depth);
    return r;
}

static int take_page(struct parser *p)
{
    struct pst_trace *t = p->trace;
    const char *from = p->at;
    uint64_t id = 0;
    uint32_t number;

    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        if (__builtin_mul_overflow(id, 10, &id) || pst_add_overflows(id, (uint64_t)(*p->at - '0'), &id))
            return fail(p, "a hash id beyond 64 bits");
    }
    if (p->at == from)
        return fail(p, "a hash id that is no whole number");
    if (t->page_count == PST_TRACE_PAGES_MAX)
        return fail(p, "more pages than a trace may have");
    if (t->page_count - t->starts[t->request_count] == PST_TRACE_CHAIN_MAX)
        return fail(p, "more than 65534 pages in one request");
    if (t->page_count == p->page_room) {
        uint64_t room = p->page_room ? 2 * p->page_room : NAMES_MIN;
        uint32_t *larger = realloc(t->pages, room * sizeof(*larger));

        if (!larger)
            return -ENOMEM;
        t->pages = larger;
        p->page_room = room;
    }
    if (number_of(p, id, &number) < 0)
        return -ENOMEM;
    t->pages[t->page_count++] = number;
    return 0;
}

static int take_pages(struct parser *p)
{
    int r = take(p, '[') ? 0 : fail(p, "hash_ids is no array");

    if (r == 0 && take(p, ']'))
        return 0;
    while (r == 0) {
        peek(p);
        r = take_page(p);
        if (r < 0 || take(p, ']'))
            return r;
        if (!take(p, ','))
            return fail(p, "hash_ids: ',' or ']' was to come");
    }
    return r;
}

/* An object with hash_ids once. */
static int take_request(struct parser *p)
{
    bool found = false;

    if (!take(p, '{'))
        return fail(p, "no JSON object");
    for (bool first = true; !take(p, '}'); first = false) {
        struct pst_bytes name = {NULL, 0};
        int r = first || take(p, ',') ? take_string(p, &name) : fail(p, "',' or '}' was to come");
        bool pages = pst_bytes_equal(name, (struct pst_bytes){"hash_ids", 8});

        if (r == 0 && pages && found)
            r = fail(p, "hash_ids twice");
        if (r == 0 && !take(p, ':'))
            r = fail(p, "':' was to come");
        found |= pages;
        if (r == 0)
            r = pages ? take_pages(p) : skip_value(p);
        if (r < 0)
            return r;
    }
    peek(p);
    if (p->at < p->end)
        return fail(p, "more than one object");
    return found ? 0 : fail(p, "no hash_ids");
}

/* ---- the trace ---- */

static int add_request(struct parser *p)
{
    struct pst_trace *t = p->trace;

    if (t->request_count + 1 >= p->request_room) {
        uint64_t room = p->request_room ? 2 * p->request_room : NAMES_MIN;
        uint64_t *larger = realloc(t->starts, room * sizeof(*larger));

        if (!larger)
            return -ENOMEM;
        t->starts = larger;
        p->request_room = room;
    }
    t->starts[t->request_count] = t->page_count;
    return 0;
}

static int parse_line(struct parser *p)
{
    int r;

    if (!peek(p) && p->at == p->end)
        return 0;
    r = add_request(p);
    if (r == 0)
        r = take_request(p);
    if (r == 0)
        p->trace->starts[++p->trace->request_count] = p->trace->page_count;
    return r;
}

int pst_trace_parse(const char *text, size_t bytes, struct pst_trace *out, char fault[PST_FAULT_BYTES])
{
    struct parser p = {.trace = out, .end = text};
    const char *end = text + bytes;
    unsigned long line = 0;
    int r = 0;

    *out = (struct pst_trace){0};
    while (r == 0 && p.end < end) {
        const char *newline = memchr(p.end, '\n', (size_t)(end - p.end));

        p.at = p.end;
        p.end = newline ? newline : end;
        line++;
        r = parse_line(&p);
        p.end += newline != NULL;
    }
    if (r == 0 && out->page_count == 0)
        r = fail(&p, "no request names a page");
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "line %lu: %s", line, r == -ENOMEM ? "out of memory" : p.why);
    free(p.names.ids);
    free(p.names.numbers);
    if (r < 0)
        pst_trace_fini(out);
    return r;
}

int pst_trace_read(const char *path, struct pst_trace *out, char fault[PST_FAULT_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;
    struct stat st = {0};
    void *text = NULL;

    *out = (struct pst_trace){0};
    if (fd < 0 || fstat(fd, &st) < 0)
        r = -errno;
    else if (!S_ISREG(st.st_mode))
        r = -EINVAL;
    if (r == 0 && st.st_size > 0) {
        text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        r = text == MAP_FAILED ? -errno : 0;
    }
    if (fd >= 0)
        close(fd);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "%s", r == -EINVAL ? "not a regular file" : strerror(-r));
        return r;
    }
    r = pst_trace_parse(text ? text : "", (size_t)st.st_size, out, fault);
    if (text)
        munmap(text, (size_t)st.st_size);
    return r;
}

void pst_trace_fini(struct pst_trace *trace)
{
    free(trace->pages);
    free(trace->starts);
    *trace = (struct pst_trace){0};
}
