/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_rig.h: a log in a folder of its own, values to append, and what should be found again. One log a test.
 */
#ifndef PST_TEST_LOG_RIG_H
#define PST_TEST_LOG_RIG_H

#include "lib/disk_rig.h"

#include "log/reclaim.h"

enum {
    MIB = 1 << 20,
    SEGMENT_BYTES = 4 * MIB,
    SEGMENTS = 16,
    VALUES = 200,
    MEMORY_BYTES = 8 * MIB,
    PIECES = 4,
};

struct rig {
    char *folder;
    struct pst_log *log;
    struct pst_lane *lane;
    uint32_t lanes;
    uint8_t *memory; /* what is written, then what is read */
};

/* A value of the test: which it is says all about it. */
struct kept {
    char key[32];
    uint64_t generation;
    struct pst_log_place place;
    uint32_t crc;
    uint64_t ticket;
    bool there, found;
};

extern const char *driver; /* of this test */

struct pst_log_options options_of(const struct rig *rig);
void open_log(struct rig *rig);
void set_up(struct rig *rig);
void poll_lane(struct rig *rig, struct pst_list *done);
/* While nothing of the test's is underway. */
void poll_idly(struct rig *rig);

void close_log(struct rig *rig);
void tear_down(struct rig *rig);
/* Until all that was asked is done. Return: how many failed. */
uint32_t wait_all(struct rig *rig, uint32_t count);

int wait_one(struct rig *rig, struct pst_log_op *op);
struct pst_log_value value_of(const struct kept *k, uint64_t bytes);
/* All sizes: none, packed, of whole blocks, with an odd end, of several blocks. */
uint64_t bytes_of(uint64_t generation);

/* The value's bytes in @memory as pieces, aligned or not. Return: their number. */
uint32_t cut(uint8_t *memory, uint64_t bytes, bool aligned, struct iovec iov[PIECES]);

int append(struct rig *rig, struct kept *k, uint64_t generation, bool durable);
/* Reads a span and compares it. Return: the read's result. */
int read_span(struct rig *rig, const struct kept *k, uint64_t offset, uint64_t bytes);

void name_all(struct kept *kept);
void assert_all(struct rig *rig, const struct kept *kept);
void flush(struct rig *rig);
/* What a start finds becomes the places; whether it is just what is said to be there. */
void scan(struct rig *rig, struct kept *kept, struct pst_log_scanned *told);

/* ---- reclaims ---- */

/* Moves what lives in the segment that is taken back. */
void move_all(struct rig *rig, struct kept *kept);
void end_reclaim(struct rig *rig);
/* Takes a segment back, or all that are worth it. */
void reclaim(struct rig *rig, struct kept *kept);
void reclaim_all(struct rig *rig, struct kept *kept);

void bury(struct rig *rig, struct kept *k);
void flush_fails(struct rig *rig);
void restart(struct rig *rig, struct kept *kept);
/* How often a start would find it. */
int copies_of(struct rig *rig, const char *key);

#endif
