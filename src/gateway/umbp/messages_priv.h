/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages_priv.h: requests of the service UMBPMaster, as src/umbp/distributed/proto/umbp.proto of ROCm's
 * mori numbers their fields. Pure; any thread. A request is checked as a whole before anything of it counts;
 * what it repeats is then read one by one where it lies.
 */
#ifndef PST_UMBP_MESSAGES_PRIV_H
#define PST_UMBP_MESSAGES_PRIV_H

#include "directory/guest/guests.h"
#include "gateway/grpc/wire_priv.h"

enum {
    UMBP_REQUEST_BYTES_MAX = 64 << 20, /* as mori's own master takes */
    UMBP_KEYS_MAX = 131072,            /* of a request other than a heartbeat */
    UMBP_EXCLUDED_MAX = 4096,
    UMBP_HIT_KEYS_MAX = 4096, /* as mori's own */
};

/* ---- names and keys, which most requests are made of ---- */

/* Numbers of fields; 0: there is none. */
struct key_fields {
    uint32_t name;     /* the node that asks, or is spoken of */
    uint32_t keys;     /* strings, or one */
    uint32_t sizes;    /* numbers, one for each */
    uint32_t excluded; /* names */
    uint32_t number;   /* a tier, or a flag */
};

struct key_request {
    const struct key_fields *fields;
    struct pst_bytes message;
    struct pst_bytes name;
    uint64_t number;
    uint32_t key_count, size_count, excluded_count;
};

/* Return: 0, -EINVAL not such a message, -E2BIG it names too many. */
int umbp_read_keys(struct pst_bytes message, const struct key_fields *fields, struct key_request *out);
/* The next of those of field @number. @at: what is left of the message. Return: false there are no more. */
bool umbp_next_text(struct pst_bytes *at, uint32_t number, struct pst_bytes *out);

struct size_reader {
    struct pst_bytes message, packed;
};

bool umbp_next_size(struct size_reader *at, uint32_t number, uint64_t *out);

/* ---- nodes ---- */

/* @tags: where those of the request lie then, each with its NUL. Return: 0, -EINVAL. */
int umbp_read_register(struct pst_bytes message, struct pst_guest_register *out,
                       char tags[PST_GUEST_TAGS_BYTES_MAX]);

struct heartbeat {
    struct pst_bytes message;
    struct pst_bytes name;
    bool full;
    uint64_t baseline;
    struct pst_tier_use tiers[PST_POOL_TIERS];
    uint64_t keys[PST_POOL_TIERS];
    bool counts_keys;
};

/* Return: 0, -EINVAL not such a message, down to its last event. */
int umbp_read_heartbeat(struct pst_bytes message, struct heartbeat *out);

struct bundle {
    struct pst_bytes at;
    uint64_t sequence;
};

struct bundle_event {
    struct pst_bytes key;
    bool removed;
    uint32_t tier;
    uint64_t bytes;
};

bool umbp_next_bundle(struct pst_bytes *at, struct bundle *out);
bool umbp_next_event(struct bundle *bundle, struct bundle_event *out);

#endif
