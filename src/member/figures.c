/* SPDX-License-Identifier: Apache-2.0 */
/* figures.c: what a node of a pool answers to whom asks it, and not its master, for the pool's figures. */
#include "member/member.h"

#include "wire/pool.h"
#include "wire/wire.h"

#include <inttypes.h>
#include <stdio.h>

void pst_member_figures(const struct pst_member_counters *counters, const struct pst_wire_op *op, uint8_t *to,
                        size_t room, struct pst_wire_result *result)
{
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
#define X(name, text) {#name, atomic_load(&counters->name)},
        PST_MEMBER_COUNTERS(X)
#undef X
    };
    size_t bytes = 0;

    result->result = op->code == PST_POOL_FIGURES ? 0 : -EOPNOTSUPP;
    for (uint32_t i = 0; i < pst_count_of(rows) && result->result == 0; i++) {
        bytes += (size_t)snprintf((char *)to + bytes, room - bytes, "%s %" PRIu64 "\n", rows[i].name,
                                  rows[i].value);
        if (bytes >= room) /* with the zero behind the text, which is not of it */
            result->result = -ENOBUFS;
    }
    result->bytes = result->result == 0 ? (uint32_t)bytes : 0;
    pst_assert(result->bytes <= room);
}
