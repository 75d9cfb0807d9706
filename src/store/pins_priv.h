/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins_priv.h: pins of a shard: what keeps a record from eviction, or in its place. Files that move, replace
 * or free records include it; the functions are pins.c's.
 */
#ifndef PST_STORE_PINS_PRIV_H
#define PST_STORE_PINS_PRIV_H

#include "base/list.h"
#include "store/shard_priv.h"

struct pst_pin {
    struct pst_pin *next;
    uint64_t ref;
    uint64_t value_bytes;
    uint64_t until_ns;      /* TTL pin; 0: none */
    uint64_t hard;          /* hard pins on the key */
    struct pst_list shares; /* of sessions that count theirs */
    uint32_t refs;          /* transfers and views */
    bool doomed;            /* cleared: goes with its last pin */
};

struct pst_pin *pst_pins_find(const struct pst_pins *pins, uint64_t ref);
/* The one that is there, or a new one; NULL: no memory. */
struct pst_pin *pst_pins_add(struct pst_pins *pins, uint64_t ref, uint64_t value_bytes);
void pst_pins_remove(struct pst_pins *pins, struct pst_pin *pin);
/* The key's pins end; references stay. */
void pst_pin_soften(struct pst_pin *pin);
/* The holder's session ends: what it has pinned stays, and counts against nobody. */
void pst_holder_disown(struct pst_holder *holder);
void pst_pins_rename(struct pst_pins *pins, struct pst_pin *pin, uint64_t ref);
void pst_pins_fini(struct pst_pins *pins);
/* The record's entry; NULL: nothing keeps it. */
static inline struct pst_pin *pst_record_pin(const struct pst_shard *s, const struct pst_record *r)
{
    struct pst_pin *pin = NULL;

    if (r->state & PST_RECORD_PINNED) {
        pin = pst_pins_find(&s->pins, pst_record_ref(s, r));
        pst_assert(pin);
    }
    return pin;
}

/* It is cleared, and goes with its last pin. */
static inline bool pst_record_doomed(const struct pst_shard *s, const struct pst_record *r)
{
    const struct pst_pin *pin = pst_record_pin(s, r);

    return pin && pin->doomed;
}

/* True when neither reference nor pin keeps the record; forgets a pin that is over. */
bool pst_record_loose(struct pst_shard *s, struct pst_record *r, uint64_t now_ns);
/* Moves the key's pins from an overwritten record to its successor. Return: 0 or -ENOMEM. */
int pst_pins_inherit(struct pst_shard *s, struct pst_record *from, struct pst_record *to);
/* Deletes doomed records whose pins are over. */
void pst_pins_expire(struct pst_shard *s, uint64_t now_ns);

#endif
