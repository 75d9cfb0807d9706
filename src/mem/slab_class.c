/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab_class.c: the sizes that cells come in. Pure arithmetic, counted in units of 1 << cell_shift bytes: 1
 * to 36, then eight steps from one power of two to the next, so that at most an eighth of a cell is left
 * over. 36 units of 8 bytes hold the stub of a key of 256 bytes.
 */
#include "mem/slab_priv.h"

enum {
    LINEAR_UNITS = 36,
    STEPS_SKIPPED = 25, /* of eight an octave, those up to 36 units */
};

static uint64_t units_of(uint32_t slab_class)
{
    uint32_t step = slab_class - LINEAR_UNITS + STEPS_SKIPPED;

    return slab_class < LINEAR_UNITS ? slab_class + 1 : (uint64_t)(step % 8 + 9) << (step / 8 - 1);
}

void pst_slab_classes_init(struct pst_slab *slab, uint64_t page_bytes)
{
    uint64_t bytes_max = page_bytes / 2, bytes;
    uint32_t n = 0;

    do {
        struct pst_slab_class *c = &slab->classes[n];

        pst_assert(n < PST_SLAB_CLASSES_MAX);
        /* Half an odd page is no step: the last class is cut to it, lest a page hold only one cell. */
        bytes = pst_min(units_of(n) << slab->arenas->cell_shift, bytes_max);
        pst_assert(bytes > 0);
        pst_assert(n == 0 || bytes > c[-1].cell_bytes);
        c->cell_bytes = (uint32_t)bytes;
        c->divisor = pst_divisor_of((uint32_t)bytes);
        pst_list_init(&c->partial);
        if (bytes <= slab->span_bytes / 16) {
            c->cell_count = slab->span_bytes / (uint32_t)bytes;
            slab->span_classes = n + 1;
        } else {
            c->cell_count = (uint32_t)(page_bytes / bytes);
        }
        n++;
    } while (bytes < bytes_max);
    slab->class_count = n;
    pst_assert(n > LINEAR_UNITS);
    pst_assert(slab->span_classes > 0 && slab->span_classes < n);
}

uint32_t pst_slab_class_of(const struct pst_slab *slab, uint64_t bytes)
{
    uint64_t units = (bytes + (1u << slab->arenas->cell_shift) - 1) >> slab->arenas->cell_shift;
    uint32_t octave;

    pst_assert(slab->class_count > LINEAR_UNITS);
    pst_assert(bytes <= pst_slab_bytes_max(slab));
    if (units <= LINEAR_UNITS)
        return units ? (uint32_t)units - 1 : 0;
    octave = 60 - (uint32_t)__builtin_clzll(units - 1);
    return LINEAR_UNITS - STEPS_SKIPPED + octave * 8 + (uint32_t)((units - 1) >> octave);
}

uint32_t pst_slab_class_bytes(const struct pst_slab *slab, uint32_t slab_class)
{
    pst_assert(slab_class < slab->class_count);
    return slab->classes[slab_class].cell_bytes;
}

uint64_t pst_slab_bytes_max(const struct pst_slab *slab)
{
    pst_assert(slab->class_count > 0);
    return slab->classes[slab->class_count - 1].cell_bytes;
}
