/* SPDX-License-Identifier: Apache-2.0 */
/*
 * location.c: a value's pages as text and back. Text comes from people and peers: numbers are plain decimals
 * without sign, space or leading zero, so that one location has one spelling of each number.
 */
#include "mem/location.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- print ---- */

struct text_out {
    char *buf;
    size_t cap;
    int len; /* what it would be, had @buf room */
};

static __attribute__((format(printf, 2, 3))) void text_add(struct text_out *out, const char *format, ...)
{
    size_t used = pst_min((size_t)out->len, out->cap);
    va_list args;

    pst_assert(out->len >= 0);
    pst_assert(out->buf || out->cap == 0);
    va_start(args, format);
    out->len += vsnprintf(used < out->cap ? out->buf + used : NULL, out->cap - used, format, args);
    va_end(args);
}

static void text_add_run(struct text_out *out, uint32_t arena_pages, struct pst_run run, int64_t *arena_last)
{
    pst_assert(run.count > 0);
    pst_assert(run.page % arena_pages + run.count <= arena_pages);
    for (uint32_t page = run.page; page < run.page + run.count; page++) {
        uint32_t arena = page / arena_pages;

        if (*arena_last == arena)
            text_add(out, ",%u", page % arena_pages);
        else
            text_add(out, "%s%u:p%u", out->len ? ";" : "", arena, page % arena_pages);
        *arena_last = arena;
    }
}

int pst_location_print(const struct pst_location *location, char *buf, size_t cap)
{
    struct text_out out = {.buf = buf, .cap = cap};
    int64_t arena_last = -1;

    pst_assert(location->arena_pages > 0);
    if (cap > 0)
        buf[0] = 0;
    for (uint32_t i = 0; i < location->run_count; i++)
        text_add_run(&out, location->arena_pages, location->runs[i], &arena_last);
    if (location->tail_bytes > 0)
        text_add(&out, "%s%u:s%u+%u/%u", out.len ? ";" : "", location->tail_page / location->arena_pages,
                 location->tail_page % location->arena_pages, location->tail_start, location->tail_bytes);
    return out.len;
}

/* ---- parse ---- */

struct text_in {
    const char *at;
    uint32_t arena_pages;
    uint32_t page_count;
    struct pst_run *runs;
    uint32_t runs_max;
    struct pst_location out;
};

static bool text_skip(struct text_in *in, char c)
{
    if (*in->at != c)
        return false;
    in->at++;
    return true;
}

static int parse_number(struct text_in *in, uint32_t *out)
{
    const char *start = in->at;
    uint64_t n = 0;

    for (; *in->at >= '0' && *in->at <= '9'; in->at++) {
        n = n * 10 + (uint64_t)(*in->at - '0');
        if (n > UINT32_MAX)
            return -ERANGE;
    }
    if (in->at == start || (*start == '0' && in->at > start + 1))
        return -EINVAL;
    *out = (uint32_t)n;
    return 0;
}

static int parse_page(struct text_in *in, uint32_t arena, uint32_t *out)
{
    uint32_t inside;
    uint64_t page;
    int r = parse_number(in, &inside);

    if (r < 0)
        return r;
    page = (uint64_t)arena * in->arena_pages + inside;
    if (inside >= in->arena_pages || page >= in->page_count)
        return -ERANGE;
    *out = (uint32_t)page;
    pst_assert(page / in->arena_pages == arena);
    return 0;
}

/* A page that follows the last one in the same arena lengthens its run. */
static int note_page(struct text_in *in, uint32_t page)
{
    struct pst_run *last = in->out.run_count ? &in->runs[in->out.run_count - 1] : NULL;

    pst_assert(page < in->page_count);
    pst_assert(!last || last->count > 0);
    if (last && last->page + last->count == page && page % in->arena_pages != 0) {
        last->count++;
        return 0;
    }
    if (in->out.run_count == in->runs_max)
        return -E2BIG;
    pst_assert(in->runs);
    pst_assert(in->out.run_count < in->runs_max);
    in->runs[in->out.run_count++] = (struct pst_run){.page = page, .count = 1};
    return 0;
}

static int parse_pages(struct text_in *in, uint32_t arena)
{
    do {
        uint32_t page;
        int r = parse_page(in, arena, &page);

        if (r == 0)
            r = note_page(in, page);
        if (r < 0)
            return r;
    } while (text_skip(in, ','));
    return 0;
}

static int parse_tail(struct text_in *in, uint32_t arena)
{
    int r = parse_page(in, arena, &in->out.tail_page);

    if (r < 0)
        return r;
    if (!text_skip(in, '+'))
        return -EINVAL;
    if (parse_number(in, &in->out.tail_start) < 0 || !text_skip(in, '/'))
        return -EINVAL;
    if (parse_number(in, &in->out.tail_bytes) < 0)
        return -EINVAL;
    /* No page is that long: nothing in one begins or ends past 32 bits. */
    return in->out.tail_bytes == 0 || in->out.tail_start > UINT32_MAX - in->out.tail_bytes ? -EINVAL : 0;
}

static int parse_element(struct text_in *in)
{
    uint32_t arena;
    int r = parse_number(in, &arena);

    if (r < 0)
        return r;
    if (!text_skip(in, ':'))
        return -EINVAL;
    if (text_skip(in, 'p'))
        return parse_pages(in, arena);
    return text_skip(in, 's') ? parse_tail(in, arena) : -EINVAL;
}

int pst_location_parse(const char *text, uint32_t arena_pages, uint32_t page_count, struct pst_run *runs,
                       int runs_max, struct pst_location *out)
{
    struct text_in in = {
        .at = text,
        .arena_pages = arena_pages,
        .page_count = page_count,
        .runs = runs,
        .runs_max = (uint32_t)runs_max,
        .out = {.arena_pages = arena_pages, .runs = runs},
    };

    pst_assert(arena_pages > 0);
    pst_assert(runs_max >= 0);
    while (*in.at || in.at != text) {
        int r = parse_element(&in);

        if (r < 0)
            return r;
        if (!*in.at)
            break;
        if (in.out.tail_bytes > 0 || !text_skip(&in, ';'))
            return -EINVAL;
    }
    pst_assert(in.out.run_count <= in.runs_max);
    pst_assert(in.out.arena_pages == arena_pages);
    *out = in.out;
    return 0;
}
