/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c: which operations may be asked for, beside what their codes' traits say. What these tables have
 * not, nobody behind them needs to look for.
 */
#include "wire/wire.h"

static const uint32_t may[] = {
    [PST_WIRE_PUT] = PST_WIRE_IF_ABSENT | PST_WIRE_IF_GENERATION | PST_WIRE_CHECKSUM | PST_WIRE_TTL |
                     PST_WIRE_DURABLE | PST_WIRE_VALUE_IN_BULK,
    [PST_WIRE_GET] = PST_WIRE_IF_GENERATION | PST_WIRE_UNLESS_GENERATION | PST_WIRE_RANGE |
                     PST_WIRE_FROM_END | PST_WIRE_EXACT | PST_WIRE_WAIT | PST_WIRE_WANT_ATTRS,
    [PST_WIRE_STAT_KEY] = PST_WIRE_WANT_ATTRS,
    [PST_WIRE_DELETE] = PST_WIRE_IF_GENERATION | PST_WIRE_SPARE,
    [PST_WIRE_LIST] = PST_WIRE_AFTER,
    [PST_WIRE_SWEEP] = PST_WIRE_AFTER | PST_WIRE_SPARE,
    [PST_WIRE_RESERVE] = PST_WIRE_IF_ABSENT | PST_WIRE_IF_GENERATION | PST_WIRE_TTL | PST_WIRE_REPLACE,
    [PST_WIRE_WRITE_AT] = PST_WIRE_VALUE_IN_BULK,
    [PST_WIRE_RESERVATION_COMMIT] = PST_WIRE_CHECKSUM | PST_WIRE_DURABLE,
    [PST_WIRE_COPY] = PST_WIRE_VALUE_IN_BULK | PST_WIRE_DURABLE,
    [PST_WIRE_COPY_CLEAR] = PST_WIRE_AFTER | PST_WIRE_FLOOR,
    [PST_WIRE_WATCH_OPEN] = PST_WIRE_MOVES,
    [PST_WIRE_ROLE_FIRST... PST_WIRE_ROLE_LAST] = PST_WIRE_HIT, /* the role checks what it is asked */
};

static const uint32_t member_may[] = {
    [PST_WIRE_PUT] =
        PST_WIRE_IF_ABSENT | PST_WIRE_IF_GENERATION | PST_WIRE_CHECKSUM | PST_WIRE_IN_RESERVATION,
    [PST_WIRE_DELETE] = PST_WIRE_IF_GENERATION,
    [PST_WIRE_CHECK] = PST_WIRE_IF_GENERATION,
};

_Static_assert(pst_count_of(may) <= UINT8_MAX + 1 && pst_count_of(member_may) <= pst_count_of(may),
               "flags by code");

uint32_t pst_wire_may(uint8_t code, bool member)
{
    pst_assert(!member || !pst_code_of_role(code) || code >= pst_count_of(member_may));
    if (member)
        return code < pst_count_of(member_may) ? member_may[code] : 0;
    return code < pst_count_of(may) ? may[code] : 0;
}

bool pst_wire_get_fits(uint32_t flags, uint64_t offset)
{
    uint32_t conditions = flags & (PST_WIRE_IF_GENERATION | PST_WIRE_UNLESS_GENERATION);

    if (conditions && (flags & PST_WIRE_WAIT || (conditions & (conditions - 1))))
        return false; /* one condition; what is waited for is taken as it comes */
    if (flags & PST_WIRE_FROM_END)
        return flags & PST_WIRE_RANGE && offset > 0 && offset <= INT64_MAX;
    return true;
}

/* What no mask can say. */
static bool op_fits(const struct pst_wire_op *op)
{
    bool bulk = op->flags & PST_WIRE_VALUE_IN_BULK;

    if (op->copies > (op->code == PST_WIRE_PUT ? PST_WIRE_COPIES_MAX : 0) || (bulk && op->bytes == 0))
        return false;
    switch (op->code) {
    case PST_WIRE_GET:
        return pst_wire_get_fits(op->flags, op->offset);
    case PST_WIRE_CHECK:
        return op->flags & PST_WIRE_IF_GENERATION;
    case PST_WIRE_COMMIT:
        return op->member_count >= 1 && op->member_count < PST_WIRE_OPS_MAX;
    case PST_WIRE_COPY:
        return op->attrs.len >= sizeof(struct pst_wire_copy);
    case PST_WIRE_COPY_SEND:
        return op->attrs.len == 0 || op->attrs.len == sizeof(struct pst_wire_target);
    case PST_WIRE_COPY_CLEAR:
        return op->attrs.len % sizeof(struct pst_wire_cleared) == 0;
    default:
        return true;
    }
}

int pst_wire_check(const struct pst_wire_op *op, bool member)
{
    uint32_t traits = pst_code_traits(op->code);
    bool key_fits = traits & PST_CODE_KEY ? op->key.len > 0 : traits & PST_CODE_START || op->key.len == 0;

    if (!(traits & (member ? PST_CODE_MEMBER : PST_CODE_PLAIN)) ||
        op->flags & ~pst_wire_may(op->code, member) || !key_fits ||
        (op->attrs.len && !(traits & PST_CODE_ATTRS)))
        return -EPROTO;
    return op_fits(op) ? 0 : -EPROTO;
}
