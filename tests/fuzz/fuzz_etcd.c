/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_etcd.c: answers of an etcd, as JSON. What is taken keeps the bounds, and a value is its base64 again.
 */
#include "fuzz.h"

#include "master/etcd/messages.h"

enum { VALUE_BYTES_MAX = 64 };

static void check(const struct pst_etcd_done *done)
{
    pst_assert(done->count <= PST_ETCD_ENTRIES_MAX && done->revision > 0);
    for (uint32_t i = 0; i < done->count; i++) {
        const struct pst_etcd_entry *entry = &done->entries[i];
        struct pst_bytes again = {NULL, 0};
        char *text = pst_etcd_base64(entry->value);

        pst_assert(text && (!entry->there || (entry->made > 0 && entry->set >= entry->made)));
        pst_assert(entry->value.len <= VALUE_BYTES_MAX && (entry->there || entry->value.len == 0));
        pst_assert(pst_etcd_unbase64(text, entry->value.len, &again) == 0 && again.len == entry->value.len);
        pst_assert(again.len == 0 || memcmp(again.data, entry->value.data, again.len) == 0);
        free((void *)(uintptr_t)again.data);
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pst_json *answer;
    struct pst_etcd_done done;
    const char *fault = NULL;
    int64_t lease = 0;
    uint64_t ttl_s = 0;

    if (pst_json_parse_answer((struct pst_bytes){data, bytes}, &answer, &fault) < 0)
        return 0;
    if (pst_etcd_get_lease(answer, &lease, &ttl_s) == 0)
        pst_assert(lease != 0 && ttl_s <= INT32_MAX);
    if (pst_etcd_get_done(answer, VALUE_BYTES_MAX, &done) == 0) {
        check(&done);
        pst_etcd_done_fini(&done);
    }
    pst_json_free(answer);
    return 0;
}
