/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_exchange.c: what participants of one broadcast of tensors say, a line each. A join adds one, all else
 * is the last one's. When the lines are over the window closes: the members are told orders that are JSON and
 * fit together, or there is a fault.
 */
#include "fuzz.h"

#include "agent/store/exchange_priv.h"

static char owner;

static void fuzz_line(struct pst_exchanges *all, struct pst_bytes line, struct pst_exchange_member **last)
{
    struct exchange_said said;
    const char *fault = NULL;
    int r = exchange_read(line, "ns", &said, &fault);

    pst_assert(r == 0 || fault);
    if (r == 0 && said.action == EXCHANGE_JOIN) {
        said.joiner.owner = &owner;
        said.joiner.world_size = 0;
        said.joiner.timeout_ms = 1;
        fault = NULL;
        r = pst_exchange_join(all, "ns/group", &said.joiner, 0, last, &fault);
        pst_assert((r == 0) == !fault);
    } else if (r == 0 && said.action == EXCHANGE_COMPLETE && *last) {
        pst_assert(pst_exchange_complete(*last, said.success) == -EAGAIN);
    } else if (r < 0 && *last && fault) {
        pst_exchange_leave(*last);
        *last = NULL;
    }
    exchange_said_fini(&said);
}

static uint32_t fuzz_count(const struct pst_json *ready, const char *name)
{
    const char *before = "";
    uint32_t count = 0;

    for (const struct pst_json *it = pst_json_first(pst_json_get(ready, name)); it; it = pst_json_next(it)) {
        const char *key = pst_json_text(pst_json_get(it, "key"));

        pst_assert(key && *key && strcmp(before, key) <= 0);
        before = key;
        count++;
    }
    return count;
}

/* As many sends as each receiver has receives. */
static void fuzz_orders(const struct exchange_orders *orders)
{
    uint32_t sends = 0, receivers = 0;

    for (uint32_t i = 0; i < orders->plan->pod_count; i++)
        sends = (uint32_t)pst_max(sends, orders->plan->pods[i].send_count);
    for (uint32_t i = 0; i < orders->plan->pod_count; i++) {
        const struct pst_exchange_pod *pod = &orders->plan->pods[i];
        struct pst_json *ready = NULL;
        const char *fault;

        pst_assert(pst_json_parse(pst_bytes_of(orders->texts[i]), &ready, &fault) == 0);
        pst_assert(fuzz_count(ready, "sends") == pod->send_count);
        pst_assert(fuzz_count(ready, "receives") == pod->receive_count);
        pst_assert(fuzz_count(ready, "local_transfers") == pod->local_count);
        pst_assert(pod->receive_count == 0 || (pod->receive_count == sends && pod->send_count == 0));
        receivers += pod->receive_count > 0;
        pst_json_free(ready);
    }
    for (uint32_t i = 0; i < orders->plan->pod_count; i++) {
        const struct pst_exchange_pod *pod = &orders->plan->pods[i];

        pst_assert(pod->world_size == (pod->receive_count || pod->send_count ? receivers + 1 : 1));
        pst_assert((pod->rank > 0) == (pod->receive_count > 0));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_member *last = NULL;
    const char *at = (const char *)data, *end = at + bytes;
    struct pst_exchange *exchange;

    pst_assert(all);
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((stop ? stop : end) - at);

        fuzz_line(all, (struct pst_bytes){at, len}, &last);
        at += len + 1;
    }
    pst_exchanges_look(all, 1, NULL, NULL, NULL);
    exchange = pst_exchanges_find(all, PST_EXCHANGE_CLOSED);
    if (exchange) {
        struct exchange_orders orders;
        char *fault;
        int r = exchange_orders_init(exchange, &orders, &fault);

        pst_assert((r == 0) == !fault);
        if (r == 0)
            fuzz_orders(&orders);
        exchange_orders_fini(&orders);
        free(fault);
    }
    pst_exchanges_close(all);
    return 0;
}
