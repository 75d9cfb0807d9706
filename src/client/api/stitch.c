/* SPDX-License-Identifier: Apache-2.0 */
/* stitch.c: a value in several pieces, mapped behind one another so that it reads as one. Nothing is copied.
 */
#include "client/view_priv.h"

#include <sys/mman.h>

static bool mappable(const struct pst_piece_file *file, const struct pst_wire_piece *piece, bool last,
                     uint64_t unit)
{
    return file->offset % unit == 0 && (last || piece->bytes % unit == 0);
}

int pst_stitch(const struct pst_wire_piece *pieces, const struct pst_piece_file *files, uint32_t count,
               struct penstock_view *view)
{
    const uint64_t unit = (uint64_t)sysconf(_SC_PAGESIZE);
    uint8_t *base = mmap(NULL, view->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
            *at = base;

    pst_assert(count > 1);
    pst_assert(!view->data);
    if (base == MAP_FAILED)
        return -errno;
    for (uint32_t i = 0; i < count; at += pieces[i++].bytes) {
        void *mapped = MAP_FAILED;

        if (mappable(&files[i], &pieces[i], i + 1 == count, unit))
            mapped = mmap(at, pieces[i].bytes, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_POPULATE, files[i].fd,
                          (off_t)files[i].offset);
        if (mapped == MAP_FAILED) {
            munmap(base, view->bytes);
            return -EOPNOTSUPP;
        }
    }
    pst_assert(at == base + view->bytes); /* the pieces are as long as the value */
    view->data = view->reserved[VIEW_STITCH] = base;
    return 0;
}

void pst_unstitch(struct penstock_view *view)
{
    if (view->reserved[VIEW_STITCH])
        munmap(view->reserved[VIEW_STITCH], view->bytes);
}
