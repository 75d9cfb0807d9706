/* SPDX-License-Identifier: Apache-2.0 */
/*
 * desk.h: what a guest's client asks about: the guests, and the blocks that engines hold of guests and of the
 * pool's own members. Whoever leads the pool hands it out, to one at a time.
 */
#ifndef PST_GUEST_DESK_H
#define PST_GUEST_DESK_H

#include "directory/guest/guests.h"
#include "pool/map.h"

struct pst_guest_desk {
    struct pst_guests *guests;
    struct pst_external *external; /* members by their numbers, and then guests */
    const struct pst_map *map;
};

static inline uint32_t pst_guest_block_number(const struct pst_guest_desk *desk, uint32_t guest)
{
    return desk->map->members_max + guest;
}

#endif
