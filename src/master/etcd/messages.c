/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c: etcd's JSON; see messages.h. */
#include "master/etcd/messages.h"

#include <inttypes.h>
#include <stdio.h>

enum { NUMBER_BYTES = 24, TTL_S_MAX = 1 << 30 };

/* ---- base64 ---- */

static const char digits[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *pst_etcd_base64(struct pst_bytes data)
{
    const uint8_t *from = data.data;
    char *text = malloc(pst_div_up(data.len, 3) * 4 + 1), *to = text;

    if (!text)
        return NULL;
    for (size_t i = 0; i < data.len; i += 3) {
        size_t left = data.len - i;
        uint32_t bits = (uint32_t)from[i] << 16;

        bits |= left > 1 ? (uint32_t)from[i + 1] << 8 : 0;
        bits |= left > 2 ? from[i + 2] : 0;
        *to++ = digits[bits >> 18];
        *to++ = digits[bits >> 12 & 63];
        *to++ = left > 1 ? digits[bits >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[bits & 63] : '=';
    }
    *to = '\0';
    return text;
}

/* Return: 0 to 63, or -1. */
static int digit_of(char c)
{
    const char *at = c ? memchr(digits, c, sizeof(digits)) : NULL;

    return at ? (int)(at - digits) : -1;
}

int pst_etcd_unbase64(const char *text, size_t bytes_max, struct pst_bytes *out)
{
    size_t chars = strlen(text), pads = 0, bytes, done = 0;
    uint32_t bits = 0;
    uint8_t *data;

    while (pads < 2 && pads < chars && text[chars - 1 - pads] == '=')
        pads++;
    if (chars % 4)
        return -EPROTO;
    bytes = chars / 4 * 3 - pads;
    if (bytes > bytes_max)
        return -EFBIG;
    if (bytes == 0) {
        *out = (struct pst_bytes){NULL, 0};
        return 0;
    }
    data = malloc(bytes);
    if (!data)
        return -ENOMEM;
    for (size_t i = 0; i < chars; i++) {
        int digit = i < chars - pads ? digit_of(text[i]) : 0;

        if (digit < 0) {
            free(data);
            return -EPROTO;
        }
        bits = bits << 6 | (uint32_t)digit;
        for (int shift = 16; i % 4 == 3 && shift >= 0; shift -= 8)
            if (done < bytes)
                data[done++] = (uint8_t)(bits >> shift);
    }
    pst_assert(done == bytes);
    *out = (struct pst_bytes){data, bytes};
    return 0;
}

/* ---- numbers ---- */

/* A text of digits, as etcd writes them, or a number; what is not there is 0. Return: 0 or -EPROTO. */
static int get_number(const struct pst_json *object, const char *name, int64_t *out)
{
    const struct pst_json *value = pst_json_get(object, name);
    const char *text = pst_json_text(value);
    bool minus = text && *text == '-';
    const char *end = "";
    uint64_t number = 0;

    *out = 0;
    if (!value || pst_json_integer(value, out))
        return 0;
    if (!text || pst_parse_digits(text + minus, &end, &number) < 0 || *end || number > INT64_MAX)
        return -EPROTO;
    *out = minus ? -(int64_t)number : (int64_t)number;
    return 0;
}

static int add_number(struct pst_json *object, const char *name, int64_t number)
{
    char text[NUMBER_BYTES];

    snprintf(text, sizeof(text), "%" PRId64, number);
    return object ? pst_json_add_text(object, name, text) : -ENOMEM;
}

/* ---- leases ---- */

static struct pst_json *with_number(const char *name, int64_t number)
{
    struct pst_json *root = pst_json_new_object();

    return add_number(root, name, number) < 0 ? pst_json_free(root) : root;
}

struct pst_json *pst_etcd_grant(uint64_t ttl_s)
{
    pst_assert(ttl_s > 0 && ttl_s <= TTL_S_MAX);
    return with_number("TTL", (int64_t)ttl_s);
}

struct pst_json *pst_etcd_lease(int64_t lease)
{
    return with_number("ID", lease);
}

struct pst_json *pst_etcd_user(const char *name, const char *password)
{
    struct pst_json *root = pst_json_new_object();

    if (root &&
        (pst_json_add_text(root, "name", name) < 0 || pst_json_add_text(root, "password", password) < 0))
        return pst_json_free(root);
    return root;
}

int pst_etcd_get_lease(const struct pst_json *answer, int64_t *lease, uint64_t *ttl_s)
{
    const struct pst_json *result = pst_json_get(answer, "result"), *from = result ? result : answer;
    int64_t id, ttl;

    if (!pst_json_is_object(from) || get_number(from, "ID", &id) < 0 || get_number(from, "TTL", &ttl) < 0 ||
        id == 0 || ttl > TTL_S_MAX)
        return -EPROTO;
    *lease = id;
    *ttl_s = ttl > 0 ? (uint64_t)ttl : 0;
    return 0;
}

/* ---- transactions ---- */

static struct pst_json *key_of(struct pst_etcd_txn *txn, const char *key)
{
    struct pst_json *object = pst_json_new_object();
    pst_cleanup_free char *text = pst_etcd_base64(pst_bytes_of(key));

    if (!object || !text || pst_json_add_text(object, "key", text) < 0)
        txn->error = -ENOMEM;
    return object;
}

/* Takes @item over. */
static void add_to(struct pst_etcd_txn *txn, struct pst_json **list, struct pst_json *item)
{
    if (!*list)
        *list = pst_json_new_array();
    if (pst_json_add(*list, NULL, item) < 0)
        txn->error = -ENOMEM;
}

static void add_condition(struct pst_etcd_txn *txn, const char *key, const char *target, const char *name,
                          int64_t revision)
{
    struct pst_json *object = key_of(txn, key);

    pst_assert(revision >= 0);
    if (!object || pst_json_add_text(object, "target", target) < 0 ||
        add_number(object, name, revision) < 0 || pst_json_add_text(object, "result", "EQUAL") < 0)
        txn->error = -ENOMEM;
    add_to(txn, &txn->conditions, object);
}

void pst_etcd_if_set(struct pst_etcd_txn *txn, const char *key, int64_t revision)
{
    add_condition(txn, key, "MOD", "mod_revision", revision);
}

void pst_etcd_if_made(struct pst_etcd_txn *txn, const char *key, int64_t revision)
{
    add_condition(txn, key, "CREATE", "create_revision", revision);
}

/* {"request_put": {...}}. Takes @request over. */
static void add_request(struct pst_etcd_txn *txn, struct pst_json **list, const char *name,
                        struct pst_json *request)
{
    struct pst_json *object = pst_json_new_object();

    if (pst_json_add(object, name, request) < 0)
        txn->error = -ENOMEM;
    add_to(txn, list, object);
}

void pst_etcd_then_put(struct pst_etcd_txn *txn, const char *key, struct pst_bytes value, int64_t lease)
{
    struct pst_json *request = key_of(txn, key);
    pst_cleanup_free char *text = pst_etcd_base64(value);

    if (!request || !text || pst_json_add_text(request, "value", text) < 0 ||
        (lease && add_number(request, "lease", lease) < 0))
        txn->error = -ENOMEM;
    add_request(txn, &txn->then, "request_put", request);
}

void pst_etcd_then_get(struct pst_etcd_txn *txn, const char *key)
{
    add_request(txn, &txn->then, "request_range", key_of(txn, key));
}

void pst_etcd_then_look(struct pst_etcd_txn *txn, const char *key)
{
    struct pst_json *request = key_of(txn, key);

    if (!request || pst_json_add_flag(request, "keys_only", true) < 0)
        txn->error = -ENOMEM;
    add_request(txn, &txn->then, "request_range", request);
}

void pst_etcd_else_get(struct pst_etcd_txn *txn, const char *key)
{
    add_request(txn, &txn->otherwise, "request_range", key_of(txn, key));
}

struct pst_json *pst_etcd_txn_end(struct pst_etcd_txn *txn)
{
    struct pst_json *root = pst_json_new_object();
    struct {
        const char *name;
        struct pst_json *list;
    } parts[] = {{"compare", txn->conditions}, {"success", txn->then}, {"failure", txn->otherwise}};

    for (uint32_t i = 0; i < pst_count_of(parts); i++) {
        if (parts[i].list && pst_json_add(root, parts[i].name, parts[i].list) < 0)
            txn->error = -ENOMEM;
    }
    if (txn->error < 0)
        root = pst_json_free(root); /* without memory for it there is none either */
    *txn = (struct pst_etcd_txn){.error = 0};
    return root;
}

/* ---- what was done ---- */

static int get_entry(const struct pst_json *response, size_t value_bytes_max, struct pst_etcd_entry *out)
{
    const struct pst_json *range = pst_json_get(response, "response_range"),
                          *kvs = pst_json_get(range, "kvs"), *kv = pst_json_first(kvs),
                          *value = pst_json_get(kv, "value");

    *out = (struct pst_etcd_entry){.there = false};
    if (!pst_json_is_object(response) || (range && !pst_json_is_object(range)) ||
        (kvs && !pst_json_is_array(kvs)))
        return -EPROTO;
    if (!kv)
        return 0;
    if (!pst_json_is_object(kv) || get_number(kv, "create_revision", &out->made) < 0 ||
        get_number(kv, "mod_revision", &out->set) < 0 || get_number(kv, "lease", &out->lease) < 0 ||
        out->made <= 0 || out->set < out->made || (value && !pst_json_text(value)))
        return -EPROTO;
    out->there = true;
    return value ? pst_etcd_unbase64(pst_json_text(value), value_bytes_max, &out->value) : 0;
}

int pst_etcd_get_done(const struct pst_json *answer, size_t value_bytes_max, struct pst_etcd_done *out)
{
    const struct pst_json *responses = pst_json_get(answer, "responses"),
                          *succeeded = pst_json_get(answer, "succeeded");
    struct pst_etcd_done done = {.held = false};
    int r = get_number(pst_json_get(answer, "header"), "revision", &done.revision);

    if (r == 0 && ((responses && !pst_json_is_array(responses)) ||
                   (succeeded && !pst_json_flag(succeeded, &done.held)) || done.revision <= 0))
        r = -EPROTO;
    for (const struct pst_json *at = pst_json_first(responses); r == 0 && at; at = pst_json_next(at))
        r = done.count == PST_ETCD_ENTRIES_MAX ? -EPROTO
                                               : get_entry(at, value_bytes_max, &done.entries[done.count++]);
    if (r < 0)
        pst_etcd_done_fini(&done);
    else
        *out = done;
    return r;
}

void pst_etcd_done_fini(struct pst_etcd_done *done)
{
    pst_assert(done->count <= PST_ETCD_ENTRIES_MAX);
    for (uint32_t i = 0; i < done->count; i++)
        free((void *)(uintptr_t)done->entries[i].value.data);
    done->count = 0;
}
