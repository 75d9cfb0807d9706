/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_rig.h: members of exchanges whose tensors are written as text, "key:dtype:2,3 key:dtype:". */
#ifndef PST_TEST_EXCHANGE_RIG_H
#define PST_TEST_EXCHANGE_RIG_H

#include "lib/cm.h"

#include "files/group/exchange_plan.h"

#include <stdio.h>

enum { RIG_TENSORS = 64 };

/* Tensors of which a joiner borrows. */
struct rig_tensors {
    struct pst_exchange_tensor list[RIG_TENSORS];
    int64_t shapes[RIG_TENSORS][PST_EXCHANGE_DIMENSIONS_MAX];
    char text[4096];
    uint32_t count;
};

static inline void rig_parse(struct rig_tensors *tensors, const char *text, const char *handle)
{
    char *rest = tensors->text, *word, *save = NULL;

    tensors->count = 0;
    snprintf(tensors->text, sizeof(tensors->text), "%s", text);
    while ((word = strtok_r(rest, " ", &save))) {
        struct pst_exchange_tensor *tensor = &tensors->list[tensors->count];
        char *dtype = strchr(word, ':'), *shape = dtype ? strchr(dtype + 1, ':') : NULL;

        rest = NULL;
        *tensor = (struct pst_exchange_tensor){.key = word,
                                               .given_key = word,
                                               .dtype = "f",
                                               .handle = handle,
                                               .shape = tensors->shapes[tensors->count]};
        if (dtype) {
            *dtype = 0;
            tensor->dtype = dtype + 1;
        }
        if (shape)
            *shape++ = 0;
        for (char *at = shape; at && *at; at += *at == ',')
            tensors->shapes[tensors->count][tensor->dimension_count++] = strtoll(at, &at, 10);
        assert_true(++tensors->count < RIG_TENSORS);
    }
}

static inline struct pst_exchange_member *rig_join(struct pst_exchanges *all, const char *ip,
                                                   const char *role, const char *text, uint32_t world_size,
                                                   uint64_t timeout_ms, uint64_t now_ms)
{
    struct rig_tensors tensors;
    struct pst_exchange_member *member = NULL;
    struct pst_exchange_joiner joiner = {.ip = ip,
                                         .is_putter = strcmp(role, "putter") == 0,
                                         .timeout_ms = timeout_ms,
                                         .world_size = world_size,
                                         .tensors = tensors.list,
                                         .owner = &rig_parse};
    const char *fault = NULL;
    char handle[80];

    snprintf(handle, sizeof(handle), "[\"%s\"]", ip);
    rig_parse(&tensors, text, handle);
    joiner.tensor_count = tensors.count;
    assert_int_equal(pst_exchange_join(all, "ns/g", &joiner, now_ms, &member, &fault), 0);
    assert_null(fault);
    assert_non_null(member);
    return member;
}

#endif
