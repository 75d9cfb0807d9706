/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_json.c: JSON as clients send it. What is taken keeps the bounds, and printed it is taken again. */
#include "fuzz.h"

#include "http/json.h"

static size_t walk(const struct pst_json *value, size_t depth)
{
    size_t count = 1;
    int64_t integer;
    double number;

    pst_assert(depth <= PST_JSON_DEPTH_MAX);
    pst_assert(!pst_json_integer(value, &integer) || pst_json_number(value, &number));
    pst_assert(!pst_json_text(value) || !pst_json_first(value));
    for (const struct pst_json *at = pst_json_first(value); at; at = pst_json_next(at)) {
        pst_assert(!pst_json_is_object(value) || pst_json_get(value, pst_json_name(at)));
        count += walk(at, depth + 1);
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pst_json *root, *again;
    const char *fault = NULL;
    char *copy = malloc(bytes ? bytes : 1), *text;

    pst_assert(copy);
    if (bytes)
        memcpy(copy, data, bytes);
    if (pst_json_parse((struct pst_bytes){copy, bytes}, &root, &fault) == 0) {
        pst_assert(walk(root, 0) <= PST_JSON_VALUES_MAX + 1);
        text = pst_json_print(root);
        pst_assert(text);
        /* Escapes may have become longer, an endless number is printed as null: it is JSON all the same. */
        pst_assert(pst_json_parse((struct pst_bytes){text, strlen(text)}, &again, &fault) == 0);
        pst_assert(walk(again, 0) == walk(root, 0));
        pst_json_free(again);
        free(text);
        pst_json_free(root);
    } else {
        pst_assert(fault);
    }
    free(copy);
    return 0;
}
