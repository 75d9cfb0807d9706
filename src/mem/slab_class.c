/*
 * slab_class.c: the sizes that slots come in. Pure arithmetic, counted in units of 16 bytes: 1 to 8, then
 * eight steps from one power of two to the next, so that at most an eighth of a slot is left over.
 */
#include "mem/mem_priv.h"

enum { UNIT = 16 };

static uint64_t bytes_of(uint32_t slab_class)
{
    if (slab_class < 8)
        return (slab_class + 1) * UNIT;
    return (uint64_t)(slab_class % 8 + 9) << (slab_class / 8 - 1) << 4;
}

void pst_slab_classes_init(struct pst_slab *slab, uint64_t page_bytes)
{
    uint64_t bytes_max = page_bytes / 2, bytes;
    uint32_t n = 0;

    do {
        struct pst_slab_class *c = &slab->classes[n];

        pst_assert(n < PST_SLAB_CLASSES_MAX);
        /* Half an odd page is no step: the last class is cut to it, lest a page hold only one slot. */
        bytes = pst_min(bytes_of(n), bytes_max);
        c->slot_bytes = (uint32_t)bytes;
        c->divisor = pst_divisor_of((uint32_t)bytes);
        pst_list_init(&c->partial);
        if (bytes <= slab->span_bytes / 16) {
            c->slot_count = slab->span_bytes / (uint32_t)bytes;
            slab->span_classes = n + 1;
        } else {
            c->slot_count = (uint32_t)(page_bytes / bytes);
        }
        n++;
    } while (bytes < bytes_max);
    slab->class_count = n;
}

uint32_t pst_slab_class_of(const struct pst_slab *slab, uint64_t bytes)
{
    uint64_t units = (bytes + UNIT - 1) / UNIT;
    uint32_t octave;

    pst_assert(bytes <= pst_slab_bytes_max(slab));
    if (units <= 8)
        return units ? (uint32_t)units - 1 : 0;
    octave = 60 - (uint32_t)__builtin_clzll(units - 1);
    return octave * 8 + (uint32_t)((units - 1) >> octave);
}

uint32_t pst_slab_class_bytes(const struct pst_slab *slab, uint32_t slab_class)
{
    pst_assert(slab_class < slab->class_count);
    return slab->classes[slab_class].slot_bytes;
}

uint64_t pst_slab_bytes_max(const struct pst_slab *slab)
{
    return slab->classes[slab->class_count - 1].slot_bytes;
}
