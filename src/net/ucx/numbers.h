/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.h: until the release, new descriptors get numbers that those of the last port did not have. */
#ifndef PST_UCX_NUMBERS_H
#define PST_UCX_NUMBERS_H

enum { UCX_NUMBERS_MAX = 512 };
struct ucx_numbers {
    int held[UCX_NUMBERS_MAX];
    int count;
};

void ucx_numbers_hold(struct ucx_numbers *numbers);
void ucx_numbers_release(struct ucx_numbers *numbers);

#endif
