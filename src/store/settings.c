/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: from a user's settings to a store's options. */
#include "base/limits.h"
#include "gpu/gpu.h"
#include "store/settings.h"

#include <stdio.h>

int pst_prefix_numbers_parse(const struct pst_strings *texts, const char *what, struct pst_prefix_number *out,
                             char fault[PST_FAULT_BYTES])
{
    pst_assert(texts->count <= PST_STRINGS_MAX);
    for (uint32_t i = 0; i < texts->count; i++) {
        const char *text = texts->items[i], *equals = strrchr(text, '=');

        if (!equals || equals - text > PST_KEY_BYTES_MAX || pst_parse_size(equals + 1, &out[i].number) < 0) {
            snprintf(fault, PST_FAULT_BYTES, "%s '%.200s' is not PREFIX=NUMBER", what, text);
            return -EINVAL;
        }
        out[i].prefix = (struct pst_bytes){text, (size_t)(equals - text)};
    }
    return 0;
}

int pst_device_parse(const char *text, struct pst_device_options *out, char fault[PST_FAULT_BYTES])
{
    static const struct pst_gpu_ops *const devices[] = {&pst_gpu_host, &pst_gpu_cuda};
    struct pst_device_options read = {.ops = &pst_gpu_cuda};
    const char *size = strrchr(text, ':'), *number = strchr(text, ':'), *end = "";
    uint64_t ordinal = 0;
    int r = size ? -EINVAL : 0;

    for (size_t i = 0; number && i < pst_count_of(devices); i++) {
        const char *name = devices[i]->name;

        if (strlen(name) == (size_t)(number - text) && strncmp(text, name, strlen(name)) == 0) {
            read.ops = devices[i];
            r = 0;
        }
    }
    if (r == 0 && number != size)
        r = pst_parse_digits(number + 1, &end, &ordinal) < 0 || end != size ? -EINVAL : 0;
    if (r == 0)
        r = pst_parse_size(size ? size + 1 : text, &read.bytes);
    if (r < 0 || read.bytes == 0 || ordinal > UINT32_MAX) {
        snprintf(fault, PST_FAULT_BYTES, "hbm '%.200s' is not SIZE, DEVICE:SIZE or DEVICE:NUMBER:SIZE", text);
        return -EINVAL;
    }
    read.ordinal = (uint32_t)ordinal;
    *out = read;
    return 0;
}

int pst_store_open_set(const struct pst_store_settings *settings, struct pst_store_options options,
                       struct pst_store **out, char fault[PST_FAULT_BYTES])
{
    struct pst_prefix_number quotas[PST_STRINGS_MAX], ttls[PST_STRINGS_MAX];
    const char *why = "";
    int r = pst_prefix_numbers_parse(&settings->quota, "quota", quotas, fault);

    if (r == 0 && settings->hbm)
        r = pst_device_parse(settings->hbm, &options.hbm, fault);
    if (r == 0)
        r = pst_prefix_numbers_parse(&settings->ttl, "ttl", ttls, fault);
    if (r < 0)
        return r;
    if (settings->ssd.count && !settings->ssd_bytes) {
        snprintf(fault, PST_FAULT_BYTES, "ssd_bytes: not set: how much ssd '%.100s' may take",
                 settings->ssd.items[0]);
        return -EINVAL;
    }
    if (!pst_policy_find(settings->policy)) {
        snprintf(fault, PST_FAULT_BYTES, "policy '%.100s' is not one of " PST_POLICY_NAMES, settings->policy);
        return -EINVAL;
    }
    options.arenas.bytes = settings->dram;
    options.arenas.page_bytes = settings->page_size;
    options.arenas.arena_bytes = settings->arena_size;
    options.watermark_percent = (uint32_t)settings->watermark;
    options.policy = settings->policy;
    options.quotas = quotas;
    options.quota_count = settings->quota.count;
    options.ttls = ttls;
    options.ttl_count = settings->ttl.count;
    options.ssd.folders = (const char *const *)settings->ssd.items;
    options.ssd.folder_count = settings->ssd.count;
    options.ssd.bytes = settings->ssd_bytes;
    options.ssd.segment_bytes = settings->ssd_segment;
    options.ssd.driver = settings->ssd_driver;
    r = pst_store_open(&options, out, &why);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%s%s",
                 strncmp(why, "ssd: ", 5) == 0 || strncmp(why, "hbm: ", 5) == 0 ? "" : "dram: ", why);
    return r;
}
