/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_priv.h: what participants of a broadcast of tensors say and are told, as JSON. Pure, but
 * for the random name of a round; any thread.
 */
#ifndef PST_AGENT_EXCHANGE_PRIV_H
#define PST_AGENT_EXCHANGE_PRIV_H

#include "agent/store/store_priv.h"
#include "files/group/exchange_plan.h"

enum {
    /* What is queued in front of it on its WebSocket fits beside it. */
    EXCHANGE_READY_BYTES_MAX = PST_WEB_MESSAGE_BYTES_MAX - 1024,
    EXCHANGE_READIES_BYTES_MAX = 64 << 20, /* of one group's participants together */
};

enum exchange_action {
    EXCHANGE_HEARTBEAT,
    EXCHANGE_JOIN,
    EXCHANGE_COMPLETE,
};

struct exchange_said {
    enum exchange_action action;
    bool success;                      /* of EXCHANGE_COMPLETE */
    struct pst_exchange_joiner joiner; /* of EXCHANGE_JOIN, without an owner; it borrows the rest: */
    struct pst_json *json;
    struct pst_exchange_tensor *tensors;
    int64_t *shapes;
    char *keys, **handles;
};

/* Return: 0 and *@said, to be given to exchange_said_fini() in either case; -errno with *@fault, a static
 * text. */
int exchange_read(struct pst_bytes text, const char *namespace, struct exchange_said *said,
                  const char **fault);
void exchange_said_fini(struct exchange_said *said);

/* The name of an exchange without its namespace. */
const char *exchange_group(const struct pst_exchange *exchange);

/* What the members of an exchange that has closed are told. */
struct exchange_orders {
    struct pst_exchange_plan *plan;
    char **texts; /* for each of its pods */
};

/* Return: 0; -errno with *@fault, malloc()ed, for the members, NULL there was no memory. Fini in either case.
 */
int exchange_orders_init(const struct pst_exchange *exchange, struct exchange_orders *orders, char **fault);
void exchange_orders_fini(struct exchange_orders *orders);

#endif
