/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_model.h: what a log of values should hold, beside one that is written, killed, cut off and opened
 * again. One thread. The table of keys may lie in shared memory: it is right at any moment at which its
 * process may be killed.
 */
#ifndef PST_TEST_LOG_MODEL_H
#define PST_TEST_LOG_MODEL_H

#include "log/reclaim.h"

enum {
    MODEL_KEYS = 128,
    MODEL_LATER_MAX = 64,
    MODEL_LANES_MAX = 3,
    MODEL_VALUE_BYTES_MAX = 160 << 10,
};

struct model_key {
    uint64_t generation; /* 0: none */
    struct pst_log_place place;
    uint32_t crc;
    /* What a start may find: what was durable last, or what came later. */
    uint64_t durable;
    uint64_t later[MODEL_LATER_MAX]; /* generations; 0: a delete */
    uint32_t later_count;
};

struct model_table {
    struct model_key keys[MODEL_KEYS];
    uint64_t generation, rolls, violations;
    uint64_t starts, puts, reads, deletes, flushes, durable, moved, lost, failed, full;
    bool ready, stale_allowed;
    char text[256]; /* of the first violation */
};

struct model {
    struct model_table *table;
    const char *folder, *driver;
    uint64_t segment_bytes, segment_count, seed;
    uint32_t lane_count, waited_ms;
    bool losses_allowed, failures_allowed;
    const char *plant; /* a fault of the model's own, to be found */
    struct pst_log *log;
    uint8_t *memory; /* to write, and to read */
};

/* Memory for values; the table is the caller's. */
void model_init(struct model *m);
void model_fini(struct model *m);

/* Opens the log, with another number of lanes each time, and compares what is found with what may be. */
void model_open(struct model *m);
/* Lanes have to be idle: after a power cut they are once all has failed. */
void model_close(struct model *m);
void model_drain(struct model *m);

/* One random operation: a put, durable or not, a delete, a read, a flush, a bit of reclaim. */
void model_step(struct model *m);
void model_read_all(struct model *m);
void model_flush(struct model *m);

void model_violation(struct model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
