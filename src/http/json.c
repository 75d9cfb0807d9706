/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c: the door to cJSON. A scan looks at every text before cJSON does: it counts levels and values, which
 * cJSON allocates for as it goes, and finds what cJSON would take without a word.
 */
#include "http/json.h"

#include "base/utf8.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>

#define INTEGER_MAX 9007199254740991.0 /* beyond, a double leaves numbers out */

_Static_assert((int)PST_JSON_DEPTH_MAX <= CJSON_NESTING_LIMIT, "levels that cJSON takes");

/* ---- the scan ---- */

struct scan {
    const char *at, *end;
    size_t depth, values, values_max;
};

/* Behind the string that begins at scan->at. Return: whether it ends, and has no NUL. */
static bool scan_string(struct scan *scan)
{
    pst_assert(scan->at < scan->end);
    pst_assert(*scan->at == '"');
    for (scan->at++; scan->at < scan->end; scan->at++) {
        if (*scan->at == '"')
            return true;
        if ((unsigned char)*scan->at < ' ')
            return false;
        if (*scan->at != '\\')
            continue;
        if (scan->end - scan->at >= 6 && memcmp(scan->at, "\\u0000", 6) == 0)
            return false;
        scan->at++;
    }
    return false;
}

static int scan_text(struct scan *scan, const char **fault)
{
    for (; scan->at < scan->end; scan->at++) {
        char c = *scan->at;

        *fault = "a string is broken, or has a NUL in it";
        if (c == 0 || (c == '"' && !scan_string(scan)))
            return -EINVAL;
        scan->depth += c == '[' || c == '{';
        scan->depth -= scan->depth && (c == ']' || c == '}');
        scan->values += c == ',' || c == '[' || c == '{';
        *fault = "too deep or too many values";
        if (scan->depth > PST_JSON_DEPTH_MAX || scan->values > scan->values_max)
            return -E2BIG;
    }
    pst_assert(scan->at == scan->end);
    return 0;
}

static bool only_spaces(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n'))
        at++;
    return at == end;
}

static int parse(struct pst_bytes text, size_t bytes_max, size_t values_max, struct pst_json **out,
                 const char **fault)
{
    const char *begin = text.data, *end = begin + text.len, *stop = NULL;
    struct scan scan = {.at = begin, .end = end, .values_max = values_max};
    cJSON *root;
    int r;

    pst_assert(out && fault);
    pst_assert(text.data || text.len == 0);
    *fault = "too long";
    if (text.len > bytes_max)
        return -E2BIG;
    *fault = "not UTF-8";
    /* A mark in front, which cJSON would skip, is none of JSON's characters. */
    if (text.len == 0 || (unsigned char)*begin == 0xef || !pst_is_utf8((struct pst_bytes){begin, text.len}))
        return -EINVAL;
    r = scan_text(&scan, fault);
    if (r < 0)
        return r;
    *fault = "not JSON";
    root = cJSON_ParseWithLengthOpts(begin, text.len, &stop, false);
    if (!root)
        return -EINVAL;
    if (!only_spaces(stop, end)) {
        cJSON_Delete(root);
        return -EINVAL;
    }
    *out = (struct pst_json *)root;
    return 0;
}

int pst_json_parse(struct pst_bytes text, struct pst_json **out, const char **fault)
{
    return parse(text, PST_JSON_BYTES_MAX, PST_JSON_VALUES_MAX, out, fault);
}

int pst_json_parse_answer(struct pst_bytes text, struct pst_json **out, const char **fault)
{
    return parse(text, PST_JSON_ANSWER_BYTES_MAX, PST_JSON_ANSWER_VALUES_MAX, out, fault);
}

struct pst_json *pst_json_free(struct pst_json *root)
{
    cJSON_Delete((cJSON *)root);
    return NULL;
}

/* ---- reading ---- */

static const cJSON *node(const struct pst_json *value)
{
    return (const cJSON *)value;
}

bool pst_json_is_object(const struct pst_json *value)
{
    return cJSON_IsObject(node(value));
}

bool pst_json_is_array(const struct pst_json *value)
{
    return cJSON_IsArray(node(value));
}

bool pst_json_is_null(const struct pst_json *value)
{
    return cJSON_IsNull(node(value));
}

const struct pst_json *pst_json_get(const struct pst_json *object, const char *name)
{
    pst_assert(name);
    if (!pst_json_is_object(object))
        return NULL;
    return (const struct pst_json *)cJSON_GetObjectItemCaseSensitive(node(object), name);
}

const struct pst_json *pst_json_first(const struct pst_json *parent)
{
    if (!pst_json_is_object(parent) && !pst_json_is_array(parent))
        return NULL;
    return (const struct pst_json *)node(parent)->child;
}

const struct pst_json *pst_json_next(const struct pst_json *child)
{
    return child ? (const struct pst_json *)node(child)->next : NULL;
}

size_t pst_json_count(const struct pst_json *parent)
{
    size_t count = 0;

    for (const struct pst_json *at = pst_json_first(parent); at; at = pst_json_next(at))
        count++;
    return count;
}

const char *pst_json_name(const struct pst_json *member)
{
    return member ? node(member)->string : NULL;
}

const char *pst_json_text(const struct pst_json *value)
{
    return cJSON_IsString(node(value)) ? node(value)->valuestring : NULL;
}

bool pst_json_number(const struct pst_json *value, double *out)
{
    if (!cJSON_IsNumber(node(value)))
        return false;
    *out = node(value)->valuedouble;
    return true;
}

bool pst_json_integer(const struct pst_json *value, int64_t *out)
{
    double number;

    if (!pst_json_number(value, &number) || !(number >= -INTEGER_MAX && number <= INTEGER_MAX) ||
        (double)(int64_t)number != number)
        return false;
    *out = (int64_t)number;
    return true;
}

bool pst_json_flag(const struct pst_json *value, bool *out)
{
    if (!cJSON_IsBool(node(value)))
        return false;
    *out = cJSON_IsTrue(node(value));
    return true;
}

/* ---- writing ---- */

struct pst_json *pst_json_new_object(void)
{
    return (struct pst_json *)cJSON_CreateObject();
}

struct pst_json *pst_json_new_array(void)
{
    return (struct pst_json *)cJSON_CreateArray();
}

int pst_json_add(struct pst_json *parent, const char *name, struct pst_json *child)
{
    cJSON *under = (cJSON *)parent, *item = (cJSON *)child;

    pst_assert(!under || (name ? cJSON_IsObject(under) : cJSON_IsArray(under)));
    pst_assert(!item || item != under);
    pst_assert(!item || !item->prev); /* it is below nobody yet */
    if (item && name && !pst_is_utf8(pst_bytes_of(name))) {
        cJSON_Delete(item);
        return -EILSEQ;
    }
    if (item && under &&
        (name ? cJSON_AddItemToObject(under, name, item) : cJSON_AddItemToArray(under, item)))
        return 0;
    cJSON_Delete(item);
    return -ENOMEM;
}

int pst_json_add_text(struct pst_json *parent, const char *name, const char *text)
{
    if (!text)
        return pst_json_add_null(parent, name);
    if (!pst_is_utf8(pst_bytes_of(text)))
        return -EILSEQ;
    return pst_json_add(parent, name, (struct pst_json *)cJSON_CreateString(text));
}

int pst_json_add_number(struct pst_json *parent, const char *name, double number)
{
    return pst_json_add(parent, name, (struct pst_json *)cJSON_CreateNumber(number));
}

int pst_json_add_integer(struct pst_json *parent, const char *name, int64_t number)
{
    char text[24];

    pst_assert(number >= -(int64_t)INTEGER_MAX && number <= (int64_t)INTEGER_MAX);
    snprintf(text, sizeof(text), "%lld", (long long)number);
    /* Of a double cJSON may print 15 digits only. */
    return pst_json_add(parent, name, (struct pst_json *)cJSON_CreateRaw(text));
}

int pst_json_add_flag(struct pst_json *parent, const char *name, bool flag)
{
    return pst_json_add(parent, name, (struct pst_json *)cJSON_CreateBool(flag));
}

int pst_json_add_null(struct pst_json *parent, const char *name)
{
    return pst_json_add(parent, name, (struct pst_json *)cJSON_CreateNull());
}

int pst_json_add_printed(struct pst_json *parent, const char *name, const char *text)
{
    pst_assert(text && *text);
    return pst_json_add(parent, name, (struct pst_json *)cJSON_CreateRaw(text));
}

char *pst_json_print(const struct pst_json *value)
{
    pst_assert(value);
    return cJSON_PrintUnformatted(node(value));
}

/* Turns numbers into the digits that are read as the same ones; cJSON would print 15 of them at times. */
static int number_fix(cJSON *item)
{
    char text[32];

    pst_assert(cJSON_IsNumber(item));
    pst_assert(!item->valuestring);
    if (!(fabs(item->valuedouble) <= INTEGER_MAX))
        return -ERANGE;
    if (floor(item->valuedouble) == item->valuedouble) { /* no exponent, with which it would be no integer */
        snprintf(text, sizeof(text), "%.0f", item->valuedouble);
    } else {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof(text), "%.*g", digits, item->valuedouble);
            if (strtod(text, NULL) == item->valuedouble)
                break;
        }
    }
    item->valuestring = cJSON_malloc(strlen(text) + 1);
    if (!item->valuestring)
        return -ENOMEM;
    memcpy(item->valuestring, text, strlen(text) + 1);
    item->type = cJSON_Raw;
    return 0;
}

/* As deep as what was read. */
static int numbers_fix(cJSON *item)
{
    int r = cJSON_IsNumber(item) ? number_fix(item) : 0;

    for (cJSON *child = item->child; child && r == 0; child = child->next)
        r = numbers_fix(child);
    return r;
}

/* Whether there are more than @left values, none of which has less than a byte. */
static bool values_exceed(const cJSON *item, size_t *left)
{
    bool more = (*left)-- == 0;

    for (const cJSON *child = item->child; child && !more; child = child->next)
        more = values_exceed(child, left);
    return more;
}

int pst_json_print_exact(const struct pst_json *value, size_t bytes_max, char **out)
{
    size_t left = bytes_max;
    cJSON *copy;
    char *text;
    int r;

    pst_assert(value);
    if (values_exceed(node(value), &left))
        return -EMSGSIZE;
    copy = cJSON_Duplicate(node(value), true);
    r = copy ? numbers_fix(copy) : -ENOMEM;
    text = r == 0 ? cJSON_PrintUnformatted(copy) : NULL;
    cJSON_Delete(copy);
    if (r == 0 && !text)
        r = -ENOMEM;
    if (r == 0 && strlen(text) > bytes_max) {
        free(text);
        r = -EMSGSIZE;
    }
    *out = r == 0 ? text : NULL;
    return r;
}
