/* SPDX-License-Identifier: Apache-2.0 */
/* arenas.c: the arenas of a node on this host, mapped read-only, and values looked at in them. */
#include "client/view_priv.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define ARENA_MAP_MAGIC 0x616d6170u

/* The arenas of one session, read-only. Views keep it after the session has gone. */
struct pst_arena_map {
    uint32_t magic;
    uint32_t refs; /* the store's and one for each view; under the store's lock */
    uint64_t session;
    uint8_t *base;
    size_t bytes;
    uint64_t stride;
    int hold_fd; /* the session's socket: keeps the node from reusing what views show */
    int fds[PST_BOOT_ARENAS_MAX];
    uint64_t sizes[PST_BOOT_ARENAS_MAX];
    uint32_t count;
};

static void map_unref(struct pst_arena_map *map)
{
    pst_assert(!map || (map->magic == ARENA_MAP_MAGIC && map->refs > 0));
    if (!map || --map->refs)
        return;
    map->magic = 0;
    if (map->bytes)
        munmap(map->base, map->bytes);
    for (uint32_t i = 0; i < map->count; i++)
        close(map->fds[i]);
    pst_close_fd(&map->hold_fd);
    free(map);
}

/* Maps one arena at its place in the reserved range, page tables filled. */
static int map_arena(struct pst_arena_map *map, int fd)
{
    struct stat st;
    uint32_t index = map->count;
    void *at = map->base + index * map->stride;

    pst_assert(index < PST_BOOT_ARENAS_MAX);
    pst_assert((index + 1) * map->stride <= map->bytes);
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((uint64_t)st.st_size > map->stride)
        return -EPROTO;
    map->fds[index] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (map->fds[index] < 0)
        return -errno;
    map->sizes[index] = (uint64_t)st.st_size;
    map->count++;
    pst_assert(map->count <= PST_BOOT_ARENAS_MAX);
    if (mmap(at, (size_t)st.st_size, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == MAP_FAILED)
        return -errno;
    return 0;
}

int pst_arena_map_open(struct pst_arena_map **out, struct pst_channel *channel)
{
    struct pst_arena_map *map;
    const int *fds;
    uint64_t stride;
    uint32_t count = pst_channel_arenas(channel, &fds, &stride);
    int r = 0;

    map_unref(*out);
    *out = NULL;
    if (count == 0)
        return 0;
    map = calloc(1, sizeof(*map));
    if (!map)
        return -ENOMEM;
    map->magic = ARENA_MAP_MAGIC;
    map->refs = 1;
    map->hold_fd = pst_channel_hold(channel);
    if (map->hold_fd < 0) {
        r = map->hold_fd;
        free(map);
        return r;
    }
    map->stride = stride;
    map->session = pst_channel_session(channel);
    map->base = mmap(NULL, count * stride, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map->base == MAP_FAILED) {
        r = -errno;
        map_unref(map);
        return r;
    }
    map->bytes = count * stride;
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = map_arena(map, fds[i]);
    if (r < 0)
        map_unref(map);
    else
        *out = map;
    return r;
}

static bool piece_mapped(const struct pst_arena_map *map, const struct pst_wire_piece *piece)
{
    pst_assert(map->stride > 0);
    pst_assert(map->count <= PST_BOOT_ARENAS_MAX);
    uint64_t arena = piece->offset / map->stride, at = piece->offset % map->stride;

    return arena < map->count && at <= map->sizes[arena] && piece->bytes <= map->sizes[arena] - at;
}

static int stitch(const struct pst_arena_map *map, const struct pst_wire_piece *pieces, uint32_t count,
                  struct penstock_view *view)
{
    struct pst_piece_file files[PST_VIEW_PIECES_MAX];

    pst_assert(count <= PST_VIEW_PIECES_MAX);
    pst_assert(count > 1);
    for (uint32_t i = 0; i < count; i++)
        files[i] =
            (struct pst_piece_file){map->fds[pieces[i].offset / map->stride], pieces[i].offset % map->stride};
    return pst_stitch(pieces, files, count, view);
}

int pst_arena_map_view(struct pst_arena_map **at, struct pst_channel *channel, uint64_t session,
                       const struct pst_wire_piece *pieces, uint32_t count, struct penstock_view *view)
{
    struct pst_arena_map *map = *at;
    int r = 0;

    if (session != pst_channel_session(channel))
        return -ECONNRESET; /* it was another session's view, and went with it */
    if (!map || map->session != pst_channel_session(channel))
        r = pst_arena_map_open(at, channel);
    map = *at;
    if (r < 0 || !map)
        return r < 0 ? r : -EOPNOTSUPP;
    for (uint32_t i = 0; i < count; i++) {
        if (!piece_mapped(map, &pieces[i]))
            return -EPROTO;
    }
    if (count > 1)
        r = stitch(map, pieces, count, view);
    else
        view->data = count ? map->base + pieces[0].offset : (const void *)"";
    if (r < 0)
        return r;
    pst_assert(map->magic == ARENA_MAP_MAGIC);
    pst_assert(map->refs > 0);
    map->refs++;
    view->reserved[VIEW_MAP] = map;
    return 0;
}

void pst_arena_map_unview(struct penstock_view *view)
{
    pst_unstitch(view);
    map_unref(view->reserved[VIEW_MAP]);
}

bool pst_arena_map_live(const struct penstock_view *view, const struct pst_channel *channel)
{
    const struct pst_arena_map *map = view->reserved[VIEW_MAP];

    pst_assert(!map || map->magic == ARENA_MAP_MAGIC);
    return map && map->session == pst_channel_session(channel);
}

void pst_arena_map_drop(struct pst_arena_map **map)
{
    map_unref(*map);
    *map = NULL;
}

void pst_arena_map_check(struct pst_arena_map **map, const struct pst_channel *channel)
{
    if (pst_likely(!*map || (*map)->session == pst_channel_session(channel)))
        return;
    pst_assert((*map)->magic == ARENA_MAP_MAGIC);
    pst_arena_map_drop(map);
}

void pst_arena_map_close(struct pst_arena_map **map)
{
    pst_assert(!*map || (*map)->refs > 0);
    if (*map)
        (*map)->refs = 1;
    pst_arena_map_drop(map);
}
