/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c: exchanges in the order of their opening, each with its members in the order of joining. */
#include "files/group/exchange.h"

#include "files/group/pod_priv.h"

#include <stdarg.h>
#include <stdio.h>

enum { NAMED_PODS_MAX = 8 }; /* in a fault */

struct pst_exchanges {
    struct pst_list list;
    uint32_t count;
    uint64_t closed; /* ever */
    size_t bytes;
};

struct pst_exchanges *pst_exchanges_open(void)
{
    struct pst_exchanges *all = calloc(1, sizeof(*all));

    if (all)
        pst_list_init(&all->list);
    return all;
}

static void member_free(struct pst_exchange_member *member)
{
    struct pst_exchange *exchange = member->exchange;

    pst_assert(exchange->all->bytes >= member->bytes);
    exchange->all->bytes -= member->bytes;
    pst_list_remove(&member->link);
    free(member);
}

static void exchange_free(struct pst_exchange *exchange)
{
    struct pst_exchanges *all = exchange->all;

    pst_list_each_safe (it, &exchange->members)
        member_free(pst_list_entry(it, struct pst_exchange_member, link));
    pst_assert(all->count > 0);
    pst_assert(all->bytes >= exchange->bytes);
    all->count--;
    all->bytes -= exchange->bytes;
    pst_list_remove(&exchange->link);
    free(exchange->fault);
    free(exchange);
}

struct pst_exchanges *pst_exchanges_close(struct pst_exchanges *all)
{
    if (!all)
        return NULL;
    pst_list_each_safe (it, &all->list)
        exchange_free(pst_list_entry(it, struct pst_exchange, link));
    pst_assert(all->count == 0);
    pst_assert(all->bytes == 0);
    free(all);
    return NULL;
}

size_t pst_exchanges_bytes(const struct pst_exchanges *all)
{
    return all->bytes;
}

/* ---- what a joiner says ---- */

/* Return: NULL, or why it cannot be. */
static const char *tensor_fault(const struct pst_exchange_tensor *tensor)
{
    if (!pod_text_fits(tensor->key, PST_KEY_BYTES_MAX) ||
        !pod_text_fits(tensor->given_key, 2 * PST_KEY_BYTES_MAX))
        return "a tensor's key cannot be";
    if (!pod_text_fits(tensor->dtype, PST_EXCHANGE_DTYPE_BYTES_MAX))
        return "a dtype has 1 to 64 bytes";
    if (tensor->handle && !pod_text_fits(tensor->handle, PST_EXCHANGE_HANDLE_BYTES_MAX))
        return "a dest_ipc_handle has at most 4096 bytes";
    if (tensor->dimension_count > PST_EXCHANGE_DIMENSIONS_MAX)
        return "a shape has at most 16 dimensions";
    for (uint32_t i = 0; i < tensor->dimension_count; i++)
        if (tensor->shape[i] < 0)
            return "a shape has no length below 0";
    return NULL;
}

static const char *joiner_fault(const struct pst_exchange_joiner *joiner)
{
    const char *fault = NULL;

    if (!pod_ip_fits(joiner->ip))
        return "pod_ip cannot be";
    if (!pod_name_fits(joiner->pod_name))
        return "pod_name is too long";
    if (joiner->timeout_ms > PST_EXCHANGE_TIMEOUT_MS_MAX)
        return "timeout is at most a day";
    if (joiner->world_size > PST_EXCHANGE_MEMBERS_MAX)
        return "world_size is at most 4096";
    if (joiner->tensor_count > PST_EXCHANGE_TENSORS_MAX)
        return "a participant has at most 4096 tensors";
    for (uint32_t i = 0; i < joiner->tensor_count && !fault; i++)
        fault = tensor_fault(&joiner->tensors[i]);
    return fault;
}

/* ---- a member's memory: one piece, in which its tensors, their shapes and all texts follow each other ----
 */

static size_t text_bytes(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static bool keeps_given_key(const struct pst_exchange_tensor *tensor)
{
    return strcmp(tensor->key, tensor->given_key) != 0;
}

static size_t member_bytes(const struct pst_exchange_joiner *joiner)
{
    size_t bytes = sizeof(struct pst_exchange_member) + text_bytes(joiner->ip) +
                   text_bytes(joiner->pod_name ? joiner->pod_name : "");

    for (uint32_t i = 0; i < joiner->tensor_count; i++) {
        const struct pst_exchange_tensor *tensor = &joiner->tensors[i];

        bytes += sizeof(*tensor) + tensor->dimension_count * sizeof(*tensor->shape) +
                 text_bytes(tensor->key) + text_bytes(tensor->dtype);
        bytes += keeps_given_key(tensor) ? text_bytes(tensor->given_key) : 0;
        bytes += joiner->is_putter ? 0 : text_bytes(tensor->handle);
    }
    return bytes;
}

/* Copies @bytes to where *@at is, and moves that behind them. */
static const void *put(char **at, const void *data, size_t bytes)
{
    const void *copy = *at;

    if (bytes)
        memcpy(*at, data, bytes);
    *at += bytes;
    return copy;
}

static struct pst_exchange_member *member_new(const struct pst_exchange_joiner *joiner, size_t bytes,
                                              uint64_t now_ms)
{
    struct pst_exchange_member *member = calloc(1, bytes);
    const char *pod_name = joiner->pod_name ? joiner->pod_name : "";
    struct pst_exchange_tensor *tensors;
    char *at;

    pst_assert(bytes >= sizeof(*member));
    pst_assert(joiner->tensor_count <= PST_EXCHANGE_TENSORS_MAX);
    if (!member)
        return NULL;
    pst_list_init(&member->link);
    tensors = (struct pst_exchange_tensor *)(member + 1);
    at = (char *)(tensors + joiner->tensor_count);
    member->owner = joiner->owner;
    member->is_putter = joiner->is_putter;
    member->heard_ms = now_ms;
    member->tensors = tensors;
    member->tensor_count = joiner->tensor_count;
    member->bytes = bytes;
    for (uint32_t i = 0; i < joiner->tensor_count; i++) { /* numbers first, in their alignment */
        tensors[i] = joiner->tensors[i];
        tensors[i].shape = put(&at, tensors[i].shape, tensors[i].dimension_count * sizeof(int64_t));
    }
    for (uint32_t i = 0; i < joiner->tensor_count; i++) {
        const struct pst_exchange_tensor *given = &joiner->tensors[i];
        bool has_handle = given->handle && !joiner->is_putter;

        tensors[i].key = put(&at, given->key, text_bytes(given->key));
        tensors[i].dtype = put(&at, given->dtype, text_bytes(given->dtype));
        tensors[i].given_key = keeps_given_key(given)
                                   ? put(&at, given->given_key, text_bytes(given->given_key))
                                   : tensors[i].key;
        tensors[i].handle = has_handle ? put(&at, given->handle, text_bytes(given->handle)) : NULL;
    }
    member->ip = put(&at, joiner->ip, text_bytes(joiner->ip));
    member->pod_name = put(&at, pod_name, text_bytes(pod_name));
    pst_assert(at == (char *)member + bytes);
    return member;
}

/* ---- one exchange ---- */

static uint32_t count_of(const struct pst_exchange *exchange)
{
    pst_assert(exchange->completed <= exchange->putters + exchange->getters);
    return exchange->putters + exchange->getters;
}

/* Closes its window if that is due. */
static void exchange_close_window(struct pst_exchange *exchange, uint64_t now_ms)
{
    pst_assert(count_of(exchange) <= PST_EXCHANGE_MEMBERS_MAX);
    if (exchange->state != PST_EXCHANGE_WAITING)
        return;
    if ((exchange->timeout_ms && now_ms >= exchange->begun_ms + exchange->timeout_ms) ||
        (exchange->world_size && count_of(exchange) >= exchange->world_size)) {
        exchange->state = PST_EXCHANGE_CLOSED;
        exchange->number = exchange->all->closed++;
    }
}

static struct pst_exchange_member *first_of_pod(const struct pst_exchange *exchange, const char *ip)
{
    pst_assert(*ip);
    pst_list_each (it, &exchange->members) {
        struct pst_exchange_member *member = pst_list_entry(it, struct pst_exchange_member, link);

        pst_assert(member->exchange == exchange);
        if (strcmp(member->ip, ip) == 0)
            return member;
    }
    return NULL;
}

static struct pst_exchange *exchange_new(struct pst_exchanges *all, const char *name,
                                         const struct pst_exchange_joiner *joiner, uint64_t now_ms)
{
    size_t name_bytes = strlen(name) + 1, bytes = sizeof(struct pst_exchange) + name_bytes;
    struct pst_exchange *exchange = calloc(1, bytes);

    pst_assert(joiner->timeout_ms || joiner->world_size);
    pst_assert(all->count < PST_EXCHANGES_MAX);
    if (!exchange)
        return NULL;
    exchange->name = memcpy(exchange + 1, name, name_bytes);
    exchange->all = all;
    exchange->begun_ms = now_ms;
    exchange->beat_ms = now_ms + PST_EXCHANGE_BEAT_MS;
    exchange->timeout_ms = joiner->timeout_ms;
    exchange->world_size = joiner->world_size;
    exchange->bytes = bytes;
    pst_list_init(&exchange->members);
    pst_list_push_back(&all->list, &exchange->link);
    all->count++;
    all->bytes += bytes;
    return exchange;
}

/* One that waits loses a member, and is gone with the last. */
static void member_take_out(struct pst_exchange_member *member)
{
    struct pst_exchange *exchange = member->exchange;
    const char *ip = member->ip;
    struct pst_exchange_member *next;

    pst_assert(exchange->state == PST_EXCHANGE_WAITING);
    pst_assert(count_of(exchange) > 0);
    pst_assert(!member->completed);
    exchange->putters -= member->is_putter;
    exchange->getters -= !member->is_putter;
    if (count_of(exchange) == 0) {
        exchange_free(exchange);
        return;
    }
    pst_list_remove(&member->link);
    if (member->is_first && (next = first_of_pod(exchange, ip)))
        next->is_first = true;
    member_free(member);
}

void pst_exchange_fail(struct pst_exchange *exchange, const char *format, ...)
{
    va_list arguments;

    pst_assert(exchange->state == PST_EXCHANGE_CLOSED || exchange->state == PST_EXCHANGE_READY);
    pst_assert(!exchange->fault);
    va_start(arguments, format);
    if (vasprintf(&exchange->fault, format, arguments) < 0)
        exchange->fault = NULL;
    va_end(arguments);
    exchange->failed = true;
    exchange->state = PST_EXCHANGE_ENDED;
}

static void fail_by(const struct pst_exchange_member *member, const char *what)
{
    bool named = *member->pod_name;

    pst_assert(!member->completed);
    pst_exchange_fail(member->exchange, "pod %s%s%s%s %s", member->ip, named ? " (" : "", member->pod_name,
                      named ? ")" : "", what);
}

/* Names the pods that it waits for. */
static void fail_by_time(struct pst_exchange *exchange)
{
    char names[NAMED_PODS_MAX * (PST_IP_BYTES_MAX + 2) + 1] = "";
    const char *named[NAMED_PODS_MAX];
    size_t count = 0, bytes = 0;
    bool more = false;

    pst_assert(exchange->state == PST_EXCHANGE_READY);
    pst_assert(exchange->completed < count_of(exchange));
    pst_list_each (it, &exchange->members) {
        const struct pst_exchange_member *member = pst_list_entry(it, struct pst_exchange_member, link);
        bool known = member->completed;

        for (size_t i = 0; i < count; i++)
            known |= strcmp(named[i], member->ip) == 0;
        if (known)
            continue;
        if (count == NAMED_PODS_MAX) {
            more = true;
            break;
        }
        bytes +=
            (size_t)snprintf(names + bytes, sizeof(names) - bytes, "%s%s", count ? ", " : "", member->ip);
        pst_assert(bytes < sizeof(names));
        named[count++] = member->ip;
    }
    pst_assert(count > 0);
    pst_exchange_fail(exchange, "the broadcast's time is over, and these pods have not completed: %s%s",
                      names, more ? " and others" : "");
}

/* ---- calls ---- */

static struct pst_exchange *find_waiting(struct pst_exchanges *all, const char *name, uint64_t now_ms)
{
    pst_list_each (it, &all->list) {
        struct pst_exchange *exchange = pst_list_entry(it, struct pst_exchange, link);

        if (exchange->state != PST_EXCHANGE_WAITING || strcmp(exchange->name, name) != 0)
            continue;
        exchange_close_window(exchange, now_ms);
        if (exchange->state == PST_EXCHANGE_WAITING)
            return exchange;
    }
    return NULL;
}

/* Whether there is room for a member of @bytes. Return: 0, or -errno with *@fault. */
static int check_room(const struct pst_exchanges *all, const struct pst_exchange *exchange, const char *name,
                      const struct pst_exchange_joiner *joiner, size_t bytes, const char **fault)
{
    pst_assert(!exchange || exchange->state == PST_EXCHANGE_WAITING);
    pst_assert(all->bytes <= PST_EXCHANGES_BYTES_MAX);
    *fault = "a broadcast needs at least one of timeout and world_size";
    if (!exchange && !joiner->timeout_ms && !joiner->world_size)
        return -EINVAL;
    *fault = "the store has as many groups as it may: 1024";
    if (!exchange && all->count >= PST_EXCHANGES_MAX)
        return -ENOSPC;
    *fault = "the group has as many participants as it may: 4096";
    if (exchange && count_of(exchange) >= PST_EXCHANGE_MEMBERS_MAX)
        return -ENOSPC;
    *fault = "the groups have as many tensors as the store keeps: 64 MiB";
    bytes += exchange ? 0 : sizeof(*exchange) + strlen(name) + 1;
    return all->bytes + bytes > PST_EXCHANGES_BYTES_MAX ? -ENOSPC : 0;
}

int pst_exchange_join(struct pst_exchanges *all, const char *name, const struct pst_exchange_joiner *joiner,
                      uint64_t now_ms, struct pst_exchange_member **out, const char **fault)
{
    struct pst_exchange_member *member;
    struct pst_exchange *exchange;
    size_t bytes;
    int r;

    *fault = pod_text_fits(name, PST_EXCHANGE_NAME_BYTES_MAX) ? joiner_fault(joiner)
                                                              : "the group's name cannot be";
    if (*fault)
        return -EINVAL;
    exchange = find_waiting(all, name, now_ms);
    bytes = member_bytes(joiner);
    r = check_room(all, exchange, name, joiner, bytes, fault);
    if (r < 0)
        return r;
    *fault = "out of memory";
    member = member_new(joiner, bytes, now_ms);
    if (member && !exchange)
        exchange = exchange_new(all, name, joiner, now_ms);
    if (!exchange || !member) {
        free(member);
        return -ENOMEM;
    }
    pst_assert(exchange->state == PST_EXCHANGE_WAITING);
    member->exchange = exchange;
    member->is_first = !first_of_pod(exchange, joiner->ip);
    pst_list_push_back(&exchange->members, &member->link);
    exchange->putters += member->is_putter;
    exchange->getters += !member->is_putter;
    all->bytes += bytes;
    pst_assert(all->bytes <= PST_EXCHANGES_BYTES_MAX);
    exchange_close_window(exchange, now_ms);
    *out = member;
    *fault = NULL;
    return 0;
}

void pst_exchange_hear(struct pst_exchange_member *member, uint64_t now_ms)
{
    pst_assert(member->owner);
    member->heard_ms = now_ms;
}

void pst_exchange_leave(struct pst_exchange_member *member)
{
    pst_assert(member->owner);
    if (member->exchange->state == PST_EXCHANGE_WAITING) {
        member_take_out(member);
        return;
    }
    member->owner = NULL;
    if (member->exchange->state != PST_EXCHANGE_ENDED && !member->completed)
        fail_by(member, "has left before the broadcast was complete");
}

int pst_exchange_complete(struct pst_exchange_member *member, bool success)
{
    struct pst_exchange *exchange = member->exchange;

    pst_assert(member->owner);
    if (exchange->state < PST_EXCHANGE_READY)
        return -EAGAIN;
    if (exchange->state == PST_EXCHANGE_ENDED)
        return 0;
    if (member->completed)
        return -EALREADY;
    if (!success) {
        fail_by(member, "could not complete the broadcast");
        return 0;
    }
    member->completed = true;
    exchange->completed++;
    pst_assert(exchange->completed <= count_of(exchange));
    if (exchange->completed == count_of(exchange))
        exchange->state = PST_EXCHANGE_ENDED;
    return 0;
}

void pst_exchange_begin(struct pst_exchange *exchange, uint64_t now_ms)
{
    pst_assert(exchange->state == PST_EXCHANGE_CLOSED);
    pst_assert(exchange->completed == 0);
    pst_assert(count_of(exchange) > 0);
    exchange->state = PST_EXCHANGE_READY;
    exchange->ends_ms = now_ms + (exchange->timeout_ms ? exchange->timeout_ms : PST_EXCHANGE_LIFE_MS);
}

void pst_exchange_forget(struct pst_exchange *exchange)
{
    pst_assert(exchange->state == PST_EXCHANGE_ENDED);
    exchange_free(exchange);
}

/* ---- time ---- */

/* Return: when the next of one that waits is silent for too long; 0: it was the last, and the exchange is
 * gone. */
static uint64_t take_out_silent(struct pst_exchange *exchange, uint64_t now_ms, pst_exchange_each *on_silent,
                                void *arg)
{
    uint64_t next_ms = UINT64_MAX;

    pst_assert(exchange->state == PST_EXCHANGE_WAITING);
    pst_assert(!pst_list_empty(&exchange->members));
    pst_list_each_safe (it, &exchange->members) {
        struct pst_exchange_member *member = pst_list_entry(it, struct pst_exchange_member, link);
        bool last = count_of(exchange) == 1;

        if (now_ms < member->heard_ms + PST_EXCHANGE_SILENCE_MS) {
            next_ms = pst_min(next_ms, member->heard_ms + PST_EXCHANGE_SILENCE_MS);
            continue;
        }
        on_silent(arg, member);
        member_take_out(member);
        if (last)
            return 0;
    }
    return next_ms;
}

static uint64_t look_waiting(struct pst_exchange *exchange, uint64_t now_ms, pst_exchange_each *on_beat,
                             pst_exchange_each *on_silent, void *arg)
{
    uint64_t next_ms = take_out_silent(exchange, now_ms, on_silent, arg);

    if (next_ms == 0)
        return UINT64_MAX;
    pst_assert(count_of(exchange) > 0);
    if (now_ms >= exchange->beat_ms) {
        pst_list_each (it, &exchange->members)
            on_beat(arg, pst_list_entry(it, struct pst_exchange_member, link));
        exchange->beat_ms = now_ms + PST_EXCHANGE_BEAT_MS;
    }
    if (exchange->timeout_ms)
        next_ms = pst_min(next_ms, exchange->begun_ms + exchange->timeout_ms);
    return pst_min(next_ms, exchange->beat_ms);
}

uint64_t pst_exchanges_look(struct pst_exchanges *all, uint64_t now_ms, pst_exchange_each *on_beat,
                            pst_exchange_each *on_silent, void *arg)
{
    uint64_t next_ms = UINT64_MAX;

    pst_list_each_safe (it, &all->list) {
        struct pst_exchange *exchange = pst_list_entry(it, struct pst_exchange, link);

        exchange_close_window(exchange, now_ms);
        if (exchange->state == PST_EXCHANGE_WAITING) {
            uint64_t it_next_ms = look_waiting(exchange, now_ms, on_beat, on_silent, arg);

            next_ms = pst_min(next_ms, it_next_ms);
        } else if (exchange->state == PST_EXCHANGE_READY) {
            if (now_ms >= exchange->ends_ms)
                fail_by_time(exchange);
            else
                next_ms = pst_min(next_ms, exchange->ends_ms);
        }
    }
    return next_ms;
}

struct pst_exchange *pst_exchanges_find(struct pst_exchanges *all, enum pst_exchange_state state)
{
    pst_list_each (it, &all->list) {
        struct pst_exchange *exchange = pst_list_entry(it, struct pst_exchange, link);

        if (exchange->state == state)
            return exchange;
    }
    return NULL;
}

struct pst_exchange *pst_exchanges_next(struct pst_exchanges *all, const struct pst_exchange *before)
{
    struct pst_list *next = before ? before->link.next : all->list.next;

    pst_assert(!before || before->all == all);
    return next == &all->list ? NULL : pst_list_entry(next, struct pst_exchange, link);
}
