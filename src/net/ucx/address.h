/* SPDX-License-Identifier: Apache-2.0 */
/* address.h: whether UCX can be given an address that a peer has sent. Pure. */
#ifndef PST_UCX_ADDRESS_H
#define PST_UCX_ADDRESS_H

#include "base/base.h"

enum { UCX_LANES_KNOWN_MAX = 32 };

struct ucx_lane_form {
    uint16_t checksum; /* of the transport's name */
    uint8_t device_bytes, bytes;
    bool by_folder; /* of posix: neither a process nor a name says where the memory is */
};

/* What this side's own address has: another side's is held against it. */
struct ucx_address_form {
    bool known; /* our address reads as address.c expects; else it can judge nobody's */
    uint32_t lane_count;
    struct ucx_lane_form lanes[UCX_LANES_KNOWN_MAX];
};

/* Reads our own address, which @form then stands for. */
void ucx_address_learn(struct ucx_address_form *form, const void *address, size_t bytes);
/* Whether UCX can be given @address; true also when @own is not known. */
bool ucx_address_sound(const struct ucx_address_form *own, const void *address, size_t bytes);

#endif
