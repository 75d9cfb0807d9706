/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: what any node tells, as JSON: its figures and its keys. */
#include "monitor/monitor_priv.h"

#include "base/hex.h"
#include "web/reply.h"
#include "wire/figures.h"
#include "wire/pool.h"

#include <inttypes.h>
#include <stdio.h>

enum { CURSOR_BYTES = 2 * PENSTOCK_KEY_BYTES_MAX + 1, GENERATION_BYTES = 24 };

void monitor_no_answer(struct pst_web_answer *answer, int error)
{
    if (error == PST_POOL_STANDBY)
        monitor_detail(answer, 503, "this master does not lead");
    else
        monitor_detail(answer, 503, "the node does not answer: %s", strerror(-error));
}

void monitor_add_count(struct pst_json *parent, const char *name, uint64_t value)
{
    pst_json_add_integer(parent, name, (int64_t)pst_min(value, (1ull << 53) - 1));
}

/* ---- figures ---- */

static struct pst_json *lines_json(char *text)
{
    struct pst_json *json = pst_json_new_object();
    char *state = NULL;

    for (const char *name = strtok_r(text, " ", &state); name; name = strtok_r(NULL, " ", &state)) {
        const char *value = strtok_r(NULL, "\n", &state);

        monitor_add_count(json, name, value ? strtoull(value, NULL, 10) : 0);
    }
    return json;
}

static struct pst_json *times_json(const struct penstock_stat *stat)
{
    struct pst_json *json = pst_json_new_object();

    for (unsigned i = 0; i < PENSTOCK_TIMES; i++) {
        struct pst_json *kind = pst_json_new_object(), *counts = pst_json_new_array();

        monitor_add_count(kind, "total_ns", stat->times[i].total_ns);
        for (uint32_t bucket = 0; bucket < PENSTOCK_TIME_BUCKETS; bucket++)
            monitor_add_count(counts, NULL, stat->times[i].counts[bucket]);
        pst_json_add(kind, "counts", counts);
        pst_json_add(json, penstock_time_name(i), kind);
    }
    return json;
}

void monitor_stats(struct pst_monitor *monitor, const struct pst_web_request *request,
                   struct pst_web_answer *answer)
{
    struct penstock_stat stat = {.size = sizeof(stat)};
    struct pst_json *json;
    char *text = NULL;
    int r = penstock_stat(monitor->store, &stat);

    (void)request;
    if (r == 0)
        r = monitor_lines(monitor, &text);
    if (r < 0) {
        monitor_no_answer(answer, r);
        return;
    }
    json = pst_json_new_object();
#define NO_ROW(text)
#define STAT_ROW(name, metric, type, unit, text) monitor_add_count(json, #name, stat.name);
    PST_STAT_FIGURES(NO_ROW, STAT_ROW)
    pst_json_add(json, "times", times_json(&stat));
    if (*text)
        pst_json_add(json, "pool", lines_json(text));
    free(text);
    pst_web_reply_json(answer, 200, json);
}

/* ---- keys ---- */

/* Return: bytes, -EINVAL. */
static int parse_hex(const char *text, uint8_t *out, size_t room)
{
    size_t count = strlen(text) / 2;

    if (strlen(text) % 2 || count > room || strspn(text, "0123456789abcdefABCDEF") != strlen(text))
        return -EINVAL;
    for (size_t i = 0; i < count; i++)
        sscanf(text + 2 * i, "%2hhx", &out[i]);
    return (int)count;
}

static void add_key(struct pst_json *keys, const struct penstock_entry *entry)
{
    struct pst_json *json = pst_json_new_object();
    char text[CURSOR_BYTES], generation[GENERATION_BYTES];

    snprintf(text, sizeof(text), "%.*s", (int)entry->key_bytes, (const char *)entry->key);
    if (strlen(text) < entry->key_bytes || pst_json_add_text(json, "key", text) < 0) { /* no text */
        pst_hex_print(entry->key, entry->key_bytes, text);
        pst_json_add_text(json, "key_hex", text);
    }
    monitor_add_count(json, "bytes", entry->value_bytes);
    snprintf(generation, sizeof(generation), "%" PRIu64, entry->generation);
    pst_json_add_text(json, "generation", generation); /* each is beyond 2^53 */
    pst_json_add_flag(json, "cache", entry->cache != 0);
    pst_json_add_integer(json, "depth", entry->depth);
    pst_json_add_flag(json, "on_ssd", entry->on_ssd != 0);
    pst_json_add_flag(json, "on_device", entry->on_device != 0);
    pst_json_add(keys, NULL, json);
}

struct question {
    char prefix[PENSTOCK_KEY_BYTES_MAX + 1];
    size_t prefix_bytes;
    uint8_t after[PENSTOCK_KEY_BYTES_MAX];
    size_t after_bytes;
    uint64_t limit;
};

/* Return: NULL, or what is wrong. */
static const char *read_question(const struct pst_web_request *request, struct question *q)
{
    char text[CURSOR_BYTES];
    int r = pst_web_query(request->query, "prefix", q->prefix, sizeof(q->prefix));

    if (r < 0 && r != -ENOENT)
        return "prefix: is no text that a key begins with";
    q->prefix_bytes = r > 0 ? (size_t)r : 0;
    r = pst_web_query(request->query, "after", text, sizeof(text));
    if (r >= 0)
        r = parse_hex(text, q->after, sizeof(q->after));
    if (r < 0 && r != -ENOENT)
        return "after: is not what an answer before had as `next`";
    q->after_bytes = r > 0 ? (size_t)r : 0;
    q->limit = MONITOR_KEYS_PRESET;
    r = pst_web_query(request->query, "limit", text, sizeof(text));
    if (r == -ENOENT)
        return NULL;
    q->limit = r > 0 && strspn(text, "0123456789") == (size_t)r ? strtoull(text, NULL, 10) : 0;
    return q->limit >= 1 && q->limit <= MONITOR_KEYS_MAX ? NULL : "limit: is a number from 1 to 1000";
}

/* Return: 1 there are more, *@next has the last one; 0; -errno. */
static int list_keys(struct pst_monitor *monitor, const struct question *q, struct pst_json *keys,
                     char next[CURSOR_BYTES])
{
    const struct penstock_list_options options = {.size = sizeof(options),
                                                  .prefix = q->prefix,
                                                  .prefix_bytes = q->prefix_bytes,
                                                  .start = q->after,
                                                  .start_bytes = q->after_bytes};
    struct pst_bytes after = {q->after, q->after_bytes};
    struct penstock_list *list = NULL;
    struct penstock_entry entry;
    uint64_t count = 0;
    int r = penstock_list_open(monitor->store, &options, &list);

    if (r < 0)
        return r;
    while ((r = penstock_list_next(list, &entry)) == 1) {
        pst_assert(entry.key_bytes <= PENSTOCK_KEY_BYTES_MAX);
        if (after.len && pst_bytes_equal(after, (struct pst_bytes){entry.key, entry.key_bytes}))
            continue; /* it was the last of the answer before */
        if (count++ == q->limit)
            break;
        add_key(keys, &entry);
        pst_hex_print(entry.key, entry.key_bytes, next);
    }
    penstock_list_close(list);
    return r;
}

void monitor_keys(struct pst_monitor *monitor, const struct pst_web_request *request,
                  struct pst_web_answer *answer)
{
    struct pst_json *json, *keys;
    char next[CURSOR_BYTES];
    struct question q;
    const char *fault = read_question(request, &q);
    int r;

    if (!monitor->tells_keys) {
        monitor_detail(answer, 403,
                       "keys need http_token_file, unless every local user may be the node's client");
        return;
    }
    if (fault) {
        monitor_detail(answer, 400, "%s", fault);
        return;
    }
    json = pst_json_new_object();
    keys = pst_json_new_array();
    r = list_keys(monitor, &q, keys, next);
    pst_json_add(json, "keys", keys);
    if (r < 0) {
        pst_json_free(json);
        monitor_no_answer(answer, r);
        return;
    }
    pst_json_add_text(json, "next", r == 1 ? next : NULL);
    pst_web_reply_json(answer, 200, json);
}
