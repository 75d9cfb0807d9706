/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h: where the log has a copy of a record's value. The files of tier/, and those that make or restore
 * records, include it.
 */
#ifndef PST_STORE_PLACE_H
#define PST_STORE_PLACE_H

#include "log/value.h"
#include "store/record.h"

/* Where the log has a copy of the value; {0, 0}: it has none. */
static inline struct pst_log_place pst_record_place(const struct pst_record *r)
{
    struct pst_log_place place = {0};

    if (r->flags & PST_RECORD_ON_DISK)
        place = (struct pst_log_place){r->stub_segment, r->stub_offset};
    else if (r->flags & PST_RECORD_TIERED)
        memcpy(&place, (const uint8_t *)r + pst_record_place_at(r->flags), sizeof(place));
    return place;
}

static inline void pst_record_set_place(struct pst_record *r, struct pst_log_place place)
{
    pst_assert(r->flags & PST_RECORD_TIERED);
    pst_assert(place.segment < PST_LOG_SEGMENTS_MAX);
    if (r->flags & PST_RECORD_ON_DISK) {
        r->stub_segment = (uint16_t)place.segment;
        r->stub_offset = place.offset;
    } else {
        memcpy((uint8_t *)r + pst_record_place_at(r->flags), &place, sizeof(place));
    }
}

static inline bool pst_record_placed(const struct pst_record *r)
{
    struct pst_log_place place = pst_record_place(r);

    return place.segment || place.offset;
}

static inline struct pst_log_value pst_record_log_value(const struct pst_record *r)
{
    return (struct pst_log_value){.key = pst_record_key(r),
                                  .attrs = pst_record_attrs(r),
                                  .generation = r->generation,
                                  .value_bytes = r->value_bytes,
                                  .value_crc = r->flags & PST_RECORD_CHECKSUM ? r->value_crc : 0,
                                  .depth = r->depth,
                                  .copies = r->copies,
                                  .flags = r->flags & PST_RECORD_CHECKSUM};
}

#endif
