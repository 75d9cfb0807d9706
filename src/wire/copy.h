/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.h: what nodes tell each other about replicas: the attributes of COPY, COPY_SEND and COPY_CLEAR.
 */
#ifndef PST_WIRE_COPY_H
#define PST_WIRE_COPY_H

#include "base/base.h"

enum pst_wire_copied { PST_WIRE_COPIED_PUT, PST_WIRE_COPIED_DELETE };

/* What the primary of a partition tells its other replicas: a value of its, or that values up to a generation
 * are gone. */
struct pst_wire_copy {
    uint64_t partition_epoch; /* 0: the key may lie anywhere, and what is there stays */
    uint64_t generation;
    uint64_t expires_ms; /* of the real-time clock; 0: never */
    uint32_t crc;
    uint8_t what;
    uint8_t checksum; /* crc is the value's */
    uint8_t copies;   /* as of a put */
    uint8_t spare;
};
_Static_assert(sizeof(struct pst_wire_copy) == 32, "wire copy");

/* Whom a value that may lie anywhere is sent to. */
struct pst_wire_target {
    uint16_t member;
    uint8_t spare[6];
};
_Static_assert(sizeof(struct pst_wire_target) == 8, "wire target");

/* A partition of which a member is to have nothing; epoch 0: a node that has it no more. */
struct pst_wire_cleared {
    uint64_t partition_epoch;
    uint16_t partition;
    uint8_t spare[6];
};
_Static_assert(sizeof(struct pst_wire_cleared) == 16, "wire cleared");

#endif
