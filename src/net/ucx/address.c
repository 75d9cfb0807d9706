/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.c: whether bytes that came from elsewhere can be a worker's address. UCX believes what it
 * unpacks: lengths that lead out of the address, a version that it does not know, or figures that are no
 * numbers abort the process. Pure.
 *
 * An address as UCX packs it, in two versions that differ where a bar says so (first | second):
 *
 *   version 4 bits; flags 4 bits | release 4 bits, flags 8 bits
 *   uuid u64 (second: by flag), client id u64 by flag, name by flag: u8 length, bytes
 *   per device: index u8 (EMPTY: no lanes), length u8 with flags, paths u8 and place u8 by flag, address
 *     per lane: checksum of its name u16, what it can do (16 bytes | 8 bytes), length u8 with flags, address
 *
 * In the second version a length with all its bits set says that the next byte is the length. In the first
 * one, from 1.16 on, an empty device at the end has the release for its index, modulo 16.
 */
#include "net/ucx/address.h"

#include <math.h>

enum {
    VERSION_MASK = 0x0f,
    VERSION_FIRST = 0,
    VERSION_SECOND = 1,
    HAS_NAME = 1 << 0,
    HAS_UUID = 1 << 1,
    HAS_CLIENT_ID = 1 << 2,
    INDEX_EMPTY = 0x80,
    INDEX_MASK_FIRST = 0x1f,
    INDEX_MASK_SECOND = 0x7f,
    INDEX_MAX = 64,    /* devices are bits of a word */
    INDEX_HIGH = 0x40, /* first version: no part of the number before 1.19, which says so by its release */
    RELEASE_MASK = 0x0f,
    RELEASE_HIGH_MAX = 18 % 16,
    DEVICE_LAST = 0x80,
    DEVICE_PATHS = 0x40,
    DEVICE_PLACE = 0x20,
    DEVICE_LENGTH_MASK = 0x1f,
    LANE_LAST = 0x80,
    LANE_ENDPOINTS = 0x40, /* only in messages of UCX's own */
    LANE_LENGTH_MASK = 0x3f,
    LANES_MAX = 128,
    TINY_EXPONENT = 0x0f,
    FLAG_MESSAGES = 1 << 1, /* of the second version: the lane takes active messages */
    POSIX_CHECKSUM = 0xd3a7,
};

/* Ways to find a segment of shared memory. Without any UCX looks in a folder that the address has to name. */
#define POSIX_WAYS (3ull << 62)

struct cursor {
    const uint8_t *at;
    size_t left;
    bool short_of; /* more was asked for than there is */
};

/* Return: the next @bytes, which are zeros when there are not that many. */
static const uint8_t *address_take(struct cursor *in, size_t bytes)
{
    static const uint8_t nothing[UINT8_MAX + 1];
    const uint8_t *at = in->at;

    pst_assert(bytes <= sizeof(nothing));
    if (bytes > in->left) {
        in->short_of = true;
        return nothing;
    }
    in->at += bytes;
    in->left -= bytes;
    return at;
}

static uint8_t take_length(struct cursor *in, uint8_t first, uint8_t mask, uint8_t version)
{
    uint8_t length = first & mask;

    pst_assert(version <= VERSION_SECOND);
    return version != VERSION_FIRST && length == mask ? *address_take(in, 1) : length;
}

/*
 * What a lane can do: costs (overhead, bandwidth, latency) as floats in the first version; in the second as
 * floats of a byte, of which an exponent of all bits is no number, and the size of a segment. Releases before
 * 1.12 sent bandwidths below zero.
 */
static bool abilities_sound(const uint8_t *at, uint8_t version)
{
    float costs[3];
    uint16_t segment, flags;

    pst_assert(version <= VERSION_SECOND);
    if (version == VERSION_FIRST) {
        memcpy(costs, at, sizeof(costs));
        return isfinite(costs[0]) && isfinite(costs[1]) && isfinite(costs[2]) && costs[0] >= 0 &&
               costs[1] != 0 && costs[2] >= 0;
    }
    for (int i = 0; i < 3; i++)
        if ((at[i] & TINY_EXPONENT) == TINY_EXPONENT)
            return false;
    memcpy(&segment, at + 4, sizeof(segment));
    memcpy(&flags, at + 6, sizeof(flags));
    return segment > 0 || !(flags & FLAG_MESSAGES);
}

static void read_segment(struct ucx_lane_form *lane, const uint8_t *address)
{
    uint64_t segment = 0;

    if (lane->bytes >= sizeof(segment))
        memcpy(&segment, address, sizeof(segment));
    lane->by_folder = lane->checksum == POSIX_CHECKSUM && !(segment & POSIX_WAYS);
}

/* Return: false when UCX would look for what @lane lacks, which our own lane of that name has. */
static bool lane_sound(const struct ucx_address_form *own, const struct ucx_lane_form *lane)
{
    pst_assert(own->lane_count <= UCX_LANES_KNOWN_MAX);
    for (uint32_t i = 0; i < own->lane_count; i++) {
        const struct ucx_lane_form *ours = &own->lanes[i];

        if (ours->checksum == lane->checksum &&
            ((ours->bytes > 0 && lane->bytes == 0) || (ours->device_bytes > 0 && lane->device_bytes == 0) ||
             (!ours->by_folder && lane->by_folder)))
            return false;
    }
    return true;
}

/* Reads the lanes of a device. Return: false when one of them is not sound. */
static bool lanes_sound(struct cursor *in, uint8_t version, uint8_t device_bytes,
                        const struct ucx_address_form *own, struct ucx_address_form *out)
{
    bool last = false;

    while (!last && !in->short_of) {
        struct ucx_lane_form lane = {.device_bytes = device_bytes};
        const uint8_t *abilities, *address;
        uint8_t length;

        memcpy(&lane.checksum, address_take(in, sizeof(lane.checksum)), sizeof(lane.checksum));
        abilities = address_take(in, version == VERSION_FIRST ? 16 : 8);
        length = *address_take(in, 1);
        last = length & LANE_LAST;
        lane.bytes = take_length(in, length, LANE_LENGTH_MASK, version);
        address = address_take(in, lane.bytes);
        read_segment(&lane, address);
        if (in->short_of || out->lane_count == LANES_MAX || (length & LANE_ENDPOINTS) ||
            !abilities_sound(abilities, version) || !lane_sound(own, &lane))
            return false;
        if (out->lane_count < UCX_LANES_KNOWN_MAX)
            out->lanes[out->lane_count] = lane;
        out->lane_count++;
    }
    pst_assert(out->lane_count <= LANES_MAX);
    return !in->short_of;
}

static bool devices_sound(struct cursor *in, uint8_t version, const struct ucx_address_form *own,
                          struct ucx_address_form *out)
{
    bool last = in->left == 1 && *in->at == UINT8_MAX; /* an address without devices */
    bool high = false;

    pst_assert(version <= VERSION_SECOND);
    if (last)
        address_take(in, 1);
    while (!last && !in->short_of) {
        uint8_t index = *address_take(in, 1), number, length, bytes;

        number =
            take_length(in, index, version == VERSION_FIRST ? INDEX_MASK_FIRST : INDEX_MASK_SECOND, version);
        length = *address_take(in, 1);
        last = length & DEVICE_LAST;
        bytes = take_length(in, length, DEVICE_LENGTH_MASK, version);
        address_take(in, !!(length & DEVICE_PATHS) + !!(length & DEVICE_PLACE));
        address_take(in, bytes);
        high |= version == VERSION_FIRST && !(index & INDEX_EMPTY) && (index & INDEX_HIGH);
        if (high && last && (index & INDEX_EMPTY) && (index & RELEASE_MASK) > RELEASE_HIGH_MAX)
            return false;
        if (in->short_of || number >= INDEX_MAX ||
            (!(index & INDEX_EMPTY) && !lanes_sound(in, version, bytes, own, out)))
            return false;
    }
    return !in->short_of;
}

/* Return: whether the address is sound to the side of @own; its lanes in @out, what is behind it in @in. */
static bool address_sound(struct cursor *in, const struct ucx_address_form *own, struct ucx_address_form *out)
{
    uint8_t head = *address_take(in, 1), version = head & VERSION_MASK, flags;

    *out = (struct ucx_address_form){0};
    if (version > VERSION_SECOND)
        return false;
    flags = version == VERSION_FIRST ? head >> 4 : *address_take(in, 1);
    if (version == VERSION_FIRST || (flags & HAS_UUID))
        address_take(in, sizeof(uint64_t));
    if (flags & HAS_CLIENT_ID)
        address_take(in, sizeof(uint64_t));
    if (flags & HAS_NAME)
        address_take(in, *address_take(in, 1));
    return !in->short_of && devices_sound(in, version, own, out);
}

bool ucx_address_sound(const struct ucx_address_form *own, const void *address, size_t bytes)
{
    struct cursor in = {.at = address, .left = bytes};
    struct ucx_address_form lanes;

    pst_assert(address);
    pst_assert(bytes > 0);
    return !own->known || address_sound(&in, own, &lanes);
}

void ucx_address_learn(struct ucx_address_form *form, const void *address, size_t bytes)
{
    const struct ucx_address_form nothing = {0};
    struct cursor in = {.at = address, .left = bytes};

    pst_assert(address);
    pst_assert(bytes > 0);
    form->known = address_sound(&in, &nothing, form) && in.left == 0;
    form->known &= form->lane_count <= UCX_LANES_KNOWN_MAX && ucx_address_sound(form, address, bytes);
    pst_assert(!form->known || form->lane_count <= UCX_LANES_KNOWN_MAX);
}
