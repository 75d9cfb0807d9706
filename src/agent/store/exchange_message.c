/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_message.c: messages of broadcasts of tensors, from JSON and to it. */
#include "agent/store/exchange_priv.h"

#include "base/hash.h"
#include "base/hex.h"

#include <math.h>
#include <stdio.h>

/* ---- what a participant says ---- */

enum { ROUND_BYTES = 16 };

static const struct pst_json *present(const struct pst_json *object, const char *name)
{
    const struct pst_json *member = pst_json_get(object, name);

    return pst_json_is_null(member) ? NULL : member;
}

static int read_shape(const struct pst_json *array, int64_t **at, struct pst_exchange_tensor *tensor)
{
    tensor->shape = *at;
    if (!pst_json_is_array(array))
        return -EINVAL;
    for (const struct pst_json *length = pst_json_first(array); length; length = pst_json_next(length))
        if (!pst_json_integer(length, (*at)++))
            return -EINVAL;
    tensor->dimension_count = (uint32_t)(*at - tensor->shape);
    pst_assert(tensor->dimension_count == pst_json_count(array));
    return 0;
}

/* Return: 0, or -errno the tensor cannot be, with *@fault. */
static int read_tensor(const struct pst_json *json, const char *namespace, struct exchange_said *said,
                       uint32_t index, char **key, int64_t **shape, const char **fault)
{
    struct pst_exchange_tensor *tensor = &said->tensors[index];
    const struct pst_json *handle = present(json, "dest_ipc_handle"),
                          *source = present(json, "src_tensor_key");
    const char *said_key = pst_json_text(pst_json_get(json, "key"));
    char full[PST_KEY_CAP];
    size_t front = strlen(namespace) + 1, bytes;
    int r;

    pst_assert(index < said->joiner.tensor_count);
    pst_assert(!said->handles[index]);
    tensor->given_key = source ? pst_json_text(source) : said_key;
    tensor->dtype = pst_json_text(pst_json_get(json, "dtype"));
    *fault = "each of tensors has a key, a shape and a dtype";
    if (!said_key || !tensor->dtype || read_shape(pst_json_get(json, "shape"), shape, tensor) < 0)
        return -EINVAL;
    *fault = "a tensor's src_tensor_key must be a text of at most 4096 bytes";
    if (!tensor->given_key || strlen(tensor->given_key) > PST_KEY_BYTES_MAX)
        return -EINVAL;
    *fault = "a tensor's key cannot be";
    r = store_full_key(namespace, said_key, full);
    if (r < 0)
        return r;
    bytes = strlen(full) + 1 - front;
    pst_assert(bytes <= strlen(said_key) + 1); /* a normal form is no longer */
    tensor->key = memcpy(*key, full + front, bytes);
    *key += bytes;
    r = handle ? pst_json_print_exact(handle, PST_EXCHANGE_HANDLE_BYTES_MAX, &said->handles[index]) : 0;
    *fault = r == -ERANGE     ? "a number of a dest_ipc_handle is 2^53 or more"
             : r == -EMSGSIZE ? "a dest_ipc_handle has at most 4096 bytes"
                              : "out of memory";
    tensor->handle = said->handles[index];
    return r;
}

static int read_tensors(const struct pst_json *array, const char *namespace, struct exchange_said *said,
                        const char **fault)
{
    size_t count = pst_json_count(array), key_bytes = 1, dimensions = 1;
    int64_t *shape;
    uint32_t index = 0;
    char *key;
    int r = 0;

    pst_assert(!said->tensors);
    *fault = "tensors must be an array of at most 4096";
    if (!pst_json_is_array(array) || count > PST_EXCHANGE_TENSORS_MAX)
        return -EINVAL;
    for (const struct pst_json *it = pst_json_first(array); it; it = pst_json_next(it)) {
        const char *given = pst_json_text(pst_json_get(it, "key"));

        key_bytes += given ? strlen(given) + 1 : 0;
        dimensions += pst_json_count(pst_json_get(it, "shape"));
    }
    said->tensors = calloc(count + 1, sizeof(*said->tensors));
    said->handles = calloc(count + 1, sizeof(*said->handles));
    said->keys = key = malloc(key_bytes);
    said->shapes = shape = calloc(dimensions, sizeof(*said->shapes));
    *fault = "out of memory";
    if (!said->tensors || !said->handles || !key || !shape)
        return -ENOMEM;
    said->joiner.tensors = said->tensors;
    said->joiner.tensor_count = (uint32_t)count;
    for (const struct pst_json *it = pst_json_first(array); it && r == 0; it = pst_json_next(it))
        r = read_tensor(it, namespace, said, index++, &key, &shape, fault);
    pst_assert(r < 0 || index == count);
    pst_assert(key <= said->keys + key_bytes);
    pst_assert(shape <= said->shapes + dimensions);
    return r;
}

static int read_window(struct exchange_said *said, const char **fault)
{
    const struct pst_json *timeout = present(said->json, "timeout"),
                          *size = present(said->json, "world_size");
    double seconds = 0;
    int64_t world_size = 0;

    *fault = "timeout is above 0 and at most 86400 (s)";
    if (timeout && (!pst_json_number(timeout, &seconds) || !(seconds > 0) ||
                    seconds > PST_EXCHANGE_TIMEOUT_MS_MAX / 1000))
        return -EINVAL;
    *fault = "world_size is 1 to 4096";
    if (size &&
        (!pst_json_integer(size, &world_size) || world_size < 1 || world_size > PST_EXCHANGE_MEMBERS_MAX))
        return -EINVAL;
    pst_assert(seconds >= 0);
    pst_assert(world_size >= 0);
    said->joiner.timeout_ms = (uint64_t)ceil(seconds * 1000);
    said->joiner.world_size = (uint32_t)world_size;
    return 0;
}

static int read_join(struct exchange_said *said, const char *namespace, const char **fault)
{
    const char *role = pst_json_text(pst_json_get(said->json, "role"));
    const struct pst_json *pod_name = present(said->json, "pod_name");
    struct pst_exchange_joiner *joiner = &said->joiner;
    int r;

    pst_assert(said->action == EXCHANGE_JOIN);
    joiner->ip = pst_json_text(pst_json_get(said->json, "pod_ip"));
    joiner->pod_name = pst_json_text(pod_name);
    *fault = "pod_ip is no address";
    if (!joiner->ip || !is_address(joiner->ip))
        return -EINVAL;
    *fault = "pod_name must be a string";
    if (pod_name && !joiner->pod_name)
        return -EINVAL;
    *fault = "role must be 'putter' or 'getter'";
    if (!role || (strcmp(role, "putter") != 0 && strcmp(role, "getter") != 0))
        return -EINVAL;
    joiner->is_putter = strcmp(role, "putter") == 0;
    r = read_window(said, fault);
    return r < 0 ? r : read_tensors(pst_json_get(said->json, "tensors"), namespace, said, fault);
}

/* What is null or false has failed: a client that has no result says null. */
static int read_complete(struct exchange_said *said, const char **fault)
{
    const struct pst_json *success = pst_json_get(said->json, "success");

    pst_assert(said->action == EXCHANGE_COMPLETE);
    pst_assert(!said->success);
    *fault = "success must be true or false";
    if (!pst_json_is_null(success) && !pst_json_flag(success, &said->success))
        return -EINVAL;
    return 0;
}

int exchange_read(struct pst_bytes text, const char *namespace, struct exchange_said *said,
                  const char **fault)
{
    const char *action;
    int r;

    *said = (struct exchange_said){.action = EXCHANGE_HEARTBEAT};
    r = pst_json_parse(text, &said->json, fault);
    if (r < 0)
        return r;
    *fault = "a participant says {\"action\": \"join\", \"heartbeat\" or \"complete\"}";
    action = pst_json_text(pst_json_get(said->json, "action"));
    if (!action)
        return -EINVAL;
    if (strcmp(action, "heartbeat") == 0)
        return 0;
    if (strcmp(action, "join") == 0) {
        said->action = EXCHANGE_JOIN;
        return read_join(said, namespace, fault);
    }
    if (strcmp(action, "complete") == 0) {
        said->action = EXCHANGE_COMPLETE;
        return read_complete(said, fault);
    }
    return -EINVAL;
}

void exchange_said_fini(struct exchange_said *said)
{
    for (uint32_t i = 0; said->handles && i < said->joiner.tensor_count; i++)
        free(said->handles[i]);
    free(said->handles);
    free(said->shapes);
    free(said->keys);
    free(said->tensors);
    said->json = pst_json_free(said->json);
}

/* ---- what it is told ---- */

const char *exchange_group(const struct pst_exchange *exchange)
{
    const char *slash = strchr(exchange->name, '/'); /* a namespace has none */

    pst_assert(slash);
    return slash + 1;
}

enum kind { SEND, RECEIVE, LOCAL };

static int add_shape(struct pst_json *json, const struct pst_exchange_tensor *tensor)
{
    struct pst_json *shape = pst_json_new_array();
    int r = 0;

    for (uint32_t i = 0; i < tensor->dimension_count; i++)
        r |= pst_json_add_integer(shape, NULL, tensor->shape[i]);
    return r | pst_json_add(json, "shape", shape) | pst_json_add_text(json, "dtype", tensor->dtype);
}

/* What a getter is told of its tensor is as it said that. @ranks: printed, of SEND. Return: 0; else there was
 * no memory. */
static int add_transfer(struct pst_json *array, enum kind kind, const struct pst_exchange_transfer *transfer,
                        const char *ranks)
{
    const struct pst_exchange_tensor *to = transfer->destination;
    struct pst_json *json = pst_json_new_object();
    int r = pst_json_add_text(json, "key", transfer->source->key);

    pst_assert((kind == SEND) == !to);
    pst_assert(kind != SEND || ranks);
    if (kind != RECEIVE)
        r |= pst_json_add_text(json, "src_tensor_key", transfer->source->given_key);
    if (kind == SEND)
        r |= pst_json_add_printed(json, "to_ranks", ranks);
    if (kind == RECEIVE)
        r |= pst_json_add_integer(json, "from_rank", 0);
    if (kind != SEND && to->handle)
        r |= pst_json_add_printed(json, "dest_ipc_handle", to->handle);
    else if (kind != SEND)
        r |= pst_json_add_null(json, "dest_ipc_handle");
    r |= add_shape(json, to ? to : transfer->source);
    return r | pst_json_add(array, NULL, json);
}

static int add_transfers(struct pst_json *json, const char *name, enum kind kind,
                         const struct pst_exchange_transfer *transfers, uint32_t count, const char *ranks)
{
    struct pst_json *array = pst_json_new_array();
    int r = 0;

    for (uint32_t i = 0; i < count && r == 0; i++)
        r = add_transfer(array, kind, &transfers[i], ranks);
    return r | pst_json_add(json, name, array);
}

/* Printed it has more than this: what is far too long need not be built to know that. */
static size_t bytes_at_least(const struct pst_exchange_pod *pod, const char *ranks)
{
    size_t bytes = pod->send_count * strlen(ranks);

    for (uint32_t i = 0; i < pod->send_count; i++)
        bytes += strlen(pod->sends[i].source->key);
    for (uint32_t i = 0; i < pod->receive_count; i++)
        bytes += strlen(pod->receives[i].source->key) +
                 (pod->receives[i].destination->handle ? strlen(pod->receives[i].destination->handle) : 0);
    for (uint32_t i = 0; i < pod->local_count; i++)
        bytes += strlen(pod->locals[i].source->key) +
                 (pod->locals[i].destination->handle ? strlen(pod->locals[i].destination->handle) : 0);
    return bytes;
}

/* What all pods of an exchange are told alike. */
struct alike {
    const char *ranks;               /* "[1,2,...]", all that receive */
    char round[2 * ROUND_BYTES + 1]; /* names the exchange, and no other one ever */
};

/* Return: 0 and *@out, malloc()ed; -EMSGSIZE, -ENOMEM. */
static int print_ready(const struct pst_exchange *exchange, const struct pst_exchange_pod *pod,
                       const struct alike *alike, char **out)
{
    struct pst_json *json, *ancestors;
    int r;

    pst_assert(pod->rank < pod->world_size);
    pst_assert(!*out);
    if (bytes_at_least(pod, alike->ranks) > EXCHANGE_READY_BYTES_MAX)
        return -EMSGSIZE;
    json = pst_json_new_object();
    ancestors = pst_json_new_array();
    r = pst_json_add_text(json, "event", "ready");
    r |= pst_json_add_text(json, "group_id", exchange_group(exchange));
    r |= pst_json_add_text(json, "round_id", alike->round);
    r |= pst_json_add_integer(json, "rank", pod->rank);
    r |= pst_json_add_integer(json, "world_size", pod->world_size);
    r |= pst_json_add_text(json, "master_addr", pod->master_ip);
    r |= pst_json_add_integer(json, "master_port",
                              PST_EXCHANGE_PORT + (int64_t)(exchange->number % PST_EXCHANGE_PORT_COUNT));
    if (pod->rank > 0)
        r |= pst_json_add_text(ancestors, NULL, pod->master_ip);
    r |= pst_json_add(json, "ancestors", ancestors);
    r |= add_transfers(json, "sends", SEND, pod->sends, pod->send_count, alike->ranks);
    r |= add_transfers(json, "receives", RECEIVE, pod->receives, pod->receive_count, alike->ranks);
    r |= add_transfers(json, "local_transfers", LOCAL, pod->locals, pod->local_count, alike->ranks);
    *out = r == 0 ? pst_json_print(json) : NULL;
    pst_json_free(json);
    if (!*out)
        return -ENOMEM;
    return strlen(*out) > EXCHANGE_READY_BYTES_MAX ? -EMSGSIZE : 0;
}

/* "[1,2,...]", all that receive. Return: malloc()ed, or NULL. */
static char *print_ranks(const struct pst_exchange_plan *plan)
{
    struct pst_json *ranks = pst_json_new_array();
    uint32_t world_size = 1;
    char *text = NULL;
    int r = 0;

    for (uint32_t i = 0; i < plan->pod_count; i++)
        world_size = (uint32_t)pst_max(world_size, plan->pods[i].world_size);
    pst_assert(world_size <= plan->pod_count);
    for (uint32_t rank = 1; rank < world_size; rank++)
        r |= pst_json_add_integer(ranks, NULL, rank);
    if (ranks && r == 0)
        text = pst_json_print(ranks);
    pst_json_free(ranks);
    return text;
}

static int print_all(const struct pst_exchange *exchange, struct exchange_orders *orders, char **fault)
{
    const struct pst_exchange_plan *plan = orders->plan;
    pst_cleanup_free char *ranks = print_ranks(plan);
    struct alike alike = {.ranks = ranks};
    uint8_t round[ROUND_BYTES];
    size_t bytes = 0;
    int r = 0;

    pst_assert(plan->pod_count > 0);
    pst_assert(!orders->texts);
    orders->texts = calloc(plan->pod_count, sizeof(*orders->texts));
    if (!ranks || !orders->texts)
        return -ENOMEM;
    pst_random(round, sizeof(round));
    pst_hex_print(round, sizeof(round), alike.round);
    for (uint32_t i = 0; i < plan->pod_count && r == 0; i++) {
        const struct pst_exchange_pod *pod = &plan->pods[i];

        r = print_ready(exchange, pod, &alike, &orders->texts[i]);
        if (r == -EMSGSIZE &&
            asprintf(fault, "what pod %s has to be told takes more than 1 MiB: take fewer tensors in a group",
                     pod->ip) < 0)
            *fault = NULL;
        if (r < 0)
            return r;
        pst_assert(pod->member_count > 0);
        bytes += pod->member_count * strlen(orders->texts[i]);
        if (bytes <= EXCHANGE_READIES_BYTES_MAX)
            continue;
        if (asprintf(fault, "what the pods have to be told takes more than 64 MiB: take fewer tensors in a "
                            "group") < 0)
            *fault = NULL;
        r = -EMSGSIZE;
    }
    return r;
}

int exchange_orders_init(const struct pst_exchange *exchange, struct exchange_orders *orders, char **fault)
{
    int r;

    *orders = (struct exchange_orders){.plan = NULL};
    *fault = NULL;
    r = pst_exchange_plan_open(exchange, &orders->plan, fault);
    return r < 0 ? r : print_all(exchange, orders, fault);
}

void exchange_orders_fini(struct exchange_orders *orders)
{
    for (uint32_t i = 0; orders->texts && i < orders->plan->pod_count; i++)
        free(orders->texts[i]);
    free(orders->texts);
    orders->plan = pst_exchange_plan_close(orders->plan);
}
