/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h: what a user may say of a store, wherever it runs. The node and the embedded store, which have
 * these settings beside their own, include it.
 */
#ifndef PST_STORE_SETTINGS_H
#define PST_STORE_SETTINGS_H

#include "base/options.h"
#include "store/policy.h"
#include "store/store.h"

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_STORE_SETTINGS(X)                                                                                \
    X(SIZE, dram, "1G", 1 << 20, 1ull << 44, "bytes", "memory for values", "UMBP_DRAM_CAPACITY")             \
    X(SIZE, page_size, "2M", 64 << 10, 1 << 30, "bytes", "page of the arenas, a multiple of 4 KiB")          \
    X(SIZE, arena_size, "0", 0, 1ull << 44, "bytes", "size of one arena; 0: one for each NUMA node")         \
    X(STRING, policy, "chains", 0, 0, "POLICY",                                                              \
      "which keys that may be evicted go first: " PST_POLICY_NAMES)                                          \
    X(LIST, quota, "", 0, 0, "PREFIX=BYTES", "what keys with this prefix may hold at most; may be repeated") \
    X(LIST, ttl, "", 0, 0, "PREFIX=MS",                                                                      \
      "how long values of this prefix live, unless their put says; may be repeated")                         \
    X(NUMBER, watermark, "95", 10, 100, "percent", "share of pages in use at which eviction starts",         \
      "UMBP_DRAM_HIGH_WM", 100)                                                                              \
    X(LIST, ssd, "", 0, 0, "FOLDER", "folder for values that memory has no room for; may be repeated")       \
    X(SIZE, ssd_bytes, "0", 0, 1ull << 50, "bytes", "what they may take there, all folders together")        \
    X(SIZE, ssd_segment, "256M", 1 << 20, 256 << 20, "bytes", "size of a file there")                        \
    X(STRING, ssd_driver, "", 0, 0, "DRIVER", "'io_uring' or 'posix'; the first that works if not set")      \
    X(STRING, hbm, "", 0, 0, "DEVICE:SIZE",                                                                  \
      "device memory for values above memory: SIZE or cuda:SIZE of the first GPU, cuda:N:SIZE of another, "  \
      "host:SIZE of the host, as a GPU's")

struct pst_store_settings {
    PST_STORE_SETTINGS(PST_OPTION_MEMBER)
};

/* These settings among others of a struct: each under its name, and as a whole as `store`. */
#define PST_STORE_SETTINGS_MEMBERS                                                                           \
    union {                                                                                                  \
        struct {                                                                                             \
            PST_STORE_SETTINGS(PST_OPTION_MEMBER)                                                            \
        };                                                                                                   \
        struct pst_store_settings store;                                                                     \
    };

/*
 * Opens a store as @settings say; of @options the rest counts: shards, cache prefixes, how the arenas lie,
 * whether the SSD is held. Return: 0, or -errno with a text in @fault that names the setting.
 */
int pst_store_open_set(const struct pst_store_settings *settings, struct pst_store_options options,
                       struct pst_store **out, char fault[PST_FAULT_BYTES]);

/* Reads "SIZE", "DEVICE:SIZE" or "DEVICE:NUMBER:SIZE". Return: 0, or -EINVAL with the reason in @fault. */
int pst_device_parse(const char *text, struct pst_device_options *out, char fault[PST_FAULT_BYTES]);

/* Reads "PREFIX=NUMBER", each into one of @out, which borrows its prefix. Return: 0 or -EINVAL with the
 * reason in @fault, which calls it @what. */
int pst_prefix_numbers_parse(const struct pst_strings *texts, const char *what, struct pst_prefix_number *out,
                             char fault[PST_FAULT_BYTES]);

#endif
