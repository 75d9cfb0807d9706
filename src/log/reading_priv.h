/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reading_priv.h: readings: values on their way back. read.c carries them out, for the caller or for a move;
 * lanes have some.
 */
#ifndef PST_LOG_READING_PRIV_H
#define PST_LOG_READING_PRIV_H

#include "base/list.h"
#include "log/io_priv.h"
#include "log/sum_priv.h"
#include "log/value.h"

struct pst_reading {
    struct pst_log_read *read; /* NULL: free */
    uint8_t *small, *large;
    uint8_t *bounce, *head; /* within them: the bytes that were asked for, a large value's head */
    struct iovec head_iov, tail_iov, bounce_iov;
    struct pst_lane_io io[3];
    uint32_t io_left;
    int result;

    /* Once it has been read. */
    struct pst_list link; /* in the lane's checks */
    struct pst_sum sum;
    struct iovec bounced; /* the bytes that were asked for, in the bounce */
    const uint32_t *crcs; /* that its next blocks must have */
};

/* Carries on with what was read first, by a step. Return: whether there was any. */
bool pst_lane_check_step(struct pst_lane *lane);
int pst_lane_read(struct pst_lane *lane, struct pst_log_read *read, uint8_t verb);
void pst_reading_io_ended(struct pst_lane *lane, struct pst_reading *reading, int result);

#endif
