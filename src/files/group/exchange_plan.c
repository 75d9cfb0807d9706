/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange_plan.c: all members' tensors are sorted by pod and key, so that what a pod has of one key lies
 * together. From there three lists are filled, each pod's part of them in one piece: what it offers, what it
 * copies, what it wants from others. All that follows is walks along these.
 */
#include "files/group/exchange_plan.h"

#include <stdarg.h>
#include <stdio.h>

enum { SHAPE_TEXT_BYTES = 24 * PST_EXCHANGE_DIMENSIONS_MAX };

/* A member's tensor. */
struct entry {
    const struct pst_exchange_tensor *tensor;
    uint32_t pod, member;
    bool is_putter;
};

/* A pod's part of a list. */
struct span {
    uint32_t begin, count;
};

/* Of one pod; the spans are of the lists below. */
struct share {
    struct span offers, locals, wants;
    bool tried; /* as the source */
};

struct work {
    const struct pst_exchange *exchange;
    struct pst_exchange_plan *plan;
    struct share *shares;
    struct entry *entries;
    uint32_t entry_count;
    const struct entry **offers; /* of each pod and key the first putter's */
    uint32_t offer_count;
    struct pst_exchange_transfer *locals;
    uint32_t local_count;
    const struct entry **wants; /* by NCCL */
    uint32_t want_count;
    const struct entry **wanted; /* of @wants each key once, sorted by it */
    uint32_t wanted_count;
    struct pst_exchange_transfer *remote; /* the source's sends, then each receiver's receives */
    char **fault;
};

static int refuse(struct work *work, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Return: -EINVAL with the fault, or -ENOMEM. */
static int refuse(struct work *work, const char *format, ...)
{
    va_list arguments;
    int bytes;

    va_start(arguments, format);
    bytes = vasprintf(work->fault, format, arguments);
    va_end(arguments);
    pst_assert(bytes != 0);
    if (bytes >= 0)
        return -EINVAL;
    *work->fault = NULL;
    return -ENOMEM;
}

static const char *ip_of(const struct work *work, uint32_t pod)
{
    pst_assert(pod < work->plan->pod_count);
    return work->plan->pods[pod].ip;
}

static int key_order(const struct entry *left, const struct entry *right)
{
    return strcmp(left->tensor->key, right->tensor->key);
}

/* ---- pods ---- */

struct seat {
    const char *ip;
    uint32_t member;
};

static int seat_order(const void *left, const void *right)
{
    const struct seat *a = left, *b = right;
    int order = strcmp(a->ip, b->ip);

    return order ? order : (a->member > b->member) - (a->member < b->member);
}

/* For each member the first one of its pod. */
static void find_firsts(struct seat *seats, uint32_t count, uint32_t *firsts)
{
    qsort(seats, count, sizeof(*seats), seat_order);
    for (uint32_t i = 0; i < count; i++) {
        bool same = i > 0 && strcmp(seats[i].ip, seats[i - 1].ip) == 0;

        pst_assert(seats[i].member < count);
        firsts[seats[i].member] = same ? firsts[seats[i - 1].member] : seats[i].member;
    }
}

/* A pod has the place of its first member. */
static void add_to_pod(struct pst_exchange_plan *plan, const struct pst_exchange_member *member, uint32_t at,
                       uint32_t first)
{
    struct pst_exchange_pod *pod;

    pst_assert(first <= at);
    plan->pod_of[at] = first == at ? plan->pod_count++ : plan->pod_of[first];
    pod = &plan->pods[plan->pod_of[at]];
    if (first == at)
        *pod = (struct pst_exchange_pod){.ip = member->ip, .master_ip = member->ip, .world_size = 1};
    pst_assert(strcmp(pod->ip, member->ip) == 0);
    pod->member_count++;
}

static int number_pods(struct work *work)
{
    uint32_t count = work->exchange->putters + work->exchange->getters, at = 0;
    struct pst_exchange_plan *plan = work->plan;
    pst_cleanup_free struct seat *seats = calloc(count, sizeof(*seats));
    pst_cleanup_free uint32_t *firsts = calloc(count, sizeof(*firsts));

    pst_assert(count > 0);
    pst_assert(plan->pod_count == 0);
    plan->pods = calloc(count, sizeof(*plan->pods));
    plan->pod_of = calloc(count, sizeof(*plan->pod_of));
    work->shares = calloc(count, sizeof(*work->shares));
    if (!seats || !firsts || !plan->pods || !plan->pod_of || !work->shares)
        return -ENOMEM;
    pst_list_each (it, &work->exchange->members) {
        seats[at] = (struct seat){pst_list_entry(it, struct pst_exchange_member, link)->ip, at};
        at++;
    }
    pst_assert(at == count);
    find_firsts(seats, count, firsts);
    at = 0;
    pst_list_each (it, &work->exchange->members) {
        add_to_pod(plan, pst_list_entry(it, struct pst_exchange_member, link), at, firsts[at]);
        at++;
    }
    return 0;
}

/* ---- what each pod offers, copies and wants ---- */

static int entry_order(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    int order;

    if (a->pod != b->pod)
        return a->pod < b->pod ? -1 : 1;
    order = key_order(a, b);
    if (order)
        return order;
    if (a->is_putter != b->is_putter)
        return a->is_putter ? -1 : 1;
    if (a->member != b->member)
        return a->member < b->member ? -1 : 1;
    return (a->tensor > b->tensor) - (a->tensor < b->tensor); /* of one member, as it said them */
}

static int collect(struct work *work)
{
    size_t count = 0;
    uint32_t member_index = 0;

    pst_list_each (it, &work->exchange->members)
        count += pst_list_entry(it, struct pst_exchange_member, link)->tensor_count;
    pst_assert(count <= PST_EXCHANGES_BYTES_MAX / sizeof(struct pst_exchange_tensor));
    work->entries = calloc(count + 1, sizeof(*work->entries));
    work->offers = calloc(count + 1, sizeof(*work->offers));
    work->locals = calloc(count + 1, sizeof(*work->locals));
    work->wants = calloc(count + 1, sizeof(*work->wants));
    work->wanted = calloc(count + 1, sizeof(*work->wanted));
    if (!work->entries || !work->offers || !work->locals || !work->wants || !work->wanted)
        return -ENOMEM;
    pst_list_each (it, &work->exchange->members) {
        const struct pst_exchange_member *member = pst_list_entry(it, struct pst_exchange_member, link);

        for (uint32_t i = 0; i < member->tensor_count; i++)
            work->entries[work->entry_count++] = (struct entry){
                &member->tensors[i], work->plan->pod_of[member_index], member_index, member->is_putter};
        member_index++;
    }
    pst_assert(work->entry_count == count);
    pst_assert(member_index == work->exchange->putters + work->exchange->getters);
    qsort(work->entries, count, sizeof(*work->entries), entry_order);
    return 0;
}

static void add_to_span(struct span *span, uint32_t at)
{
    if (span->count == 0)
        span->begin = at;
    pst_assert(span->begin + span->count == at);
    span->count++;
}

/* Of the entries of one pod and key. */
static void sort_out_run(struct work *work, const struct entry *run, uint32_t count)
{
    const struct entry *offer = run->is_putter ? run : NULL;
    struct share *share = &work->shares[run->pod];

    pst_assert(count > 0);
    pst_assert(run->pod < work->plan->pod_count);
    if (offer) {
        add_to_span(&share->offers, work->offer_count);
        work->offers[work->offer_count++] = offer;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (run[i].is_putter)
            continue;
        if (offer) {
            add_to_span(&share->locals, work->local_count);
            work->locals[work->local_count++] = (struct pst_exchange_transfer){offer->tensor, run[i].tensor};
        } else {
            add_to_span(&share->wants, work->want_count);
            work->wants[work->want_count++] = &run[i];
        }
    }
}

static void sort_out(struct work *work)
{
    pst_assert(work->offer_count == 0 && work->local_count == 0 && work->want_count == 0);
    for (uint32_t begin = 0, end; begin < work->entry_count; begin = end) {
        const struct entry *run = &work->entries[begin];

        for (end = begin + 1; end < work->entry_count; end++)
            if (work->entries[end].pod != run->pod || key_order(&work->entries[end], run) != 0)
                break;
        sort_out_run(work, run, end - begin);
    }
}

static int entry_key_order(const void *left, const void *right)
{
    const struct entry *a = *(const struct entry *const *)left, *b = *(const struct entry *const *)right;
    int order = key_order(a, b);

    return order ? order : (a->pod > b->pod) - (a->pod < b->pod);
}

static void find_wanted(struct work *work)
{
    uint32_t count = 0;

    memcpy(work->wanted, work->wants, work->want_count * sizeof(*work->wanted));
    qsort(work->wanted, work->want_count, sizeof(*work->wanted), entry_key_order);
    for (uint32_t i = 0; i < work->want_count; i++)
        if (count == 0 || key_order(work->wanted[i], work->wanted[count - 1]) != 0)
            work->wanted[count++] = work->wanted[i];
    pst_assert(count <= work->want_count);
    pst_assert((count == 0) == (work->want_count == 0));
    work->wanted_count = count;
}

/* ---- what cannot be ---- */

static int check_all_offered(struct work *work)
{
    pst_cleanup_free const struct entry **sorted = calloc((size_t)work->offer_count + 1, sizeof(*sorted));
    uint32_t at = 0;

    if (!sorted)
        return -ENOMEM;
    memcpy(sorted, work->offers, work->offer_count * sizeof(*sorted));
    qsort(sorted, work->offer_count, sizeof(*sorted), entry_key_order);
    for (uint32_t i = 0; i < work->wanted_count; i++) {
        while (at < work->offer_count && key_order(sorted[at], work->wanted[i]) < 0)
            at++;
        if (at == work->offer_count || key_order(sorted[at], work->wanted[i]) != 0)
            return refuse(work, "nobody offers the key %s, which pod %s wants", work->wanted[i]->tensor->key,
                          ip_of(work, work->wanted[i]->pod));
    }
    return 0;
}

/* Return: the first key that is wanted and that the pod does not offer; NULL: it offers all. */
static const char *lacking(const struct work *work, uint32_t pod)
{
    const struct span *span = &work->shares[pod].offers;
    uint32_t at = 0;

    pst_assert(span->begin + span->count <= work->offer_count);
    for (uint32_t i = 0; i < work->wanted_count; i++) {
        while (at < span->count && key_order(work->offers[span->begin + at], work->wanted[i]) < 0)
            at++;
        if (at == span->count || key_order(work->offers[span->begin + at], work->wanted[i]) != 0)
            return work->wanted[i]->tensor->key;
    }
    return NULL;
}

static int find_source(struct work *work, uint32_t *source)
{
    const char *first_lacks = NULL;
    uint32_t at = 0, first = 0;

    pst_list_each (it, &work->exchange->members) {
        uint32_t pod = work->plan->pod_of[at++];
        const char *key;

        if (!pst_list_entry(it, struct pst_exchange_member, link)->is_putter || work->shares[pod].tried)
            continue;
        work->shares[pod].tried = true;
        key = lacking(work, pod);
        if (!key) {
            *source = pod;
            return 0;
        }
        first = first_lacks ? first : pod;
        first_lacks = first_lacks ? first_lacks : key;
    }
    pst_assert(first_lacks); /* there is a putter */
    pst_assert(at == work->exchange->putters + work->exchange->getters);
    return refuse(work, "no pod offers all the keys that others want: pod %s does not offer %s",
                  ip_of(work, first), first_lacks);
}

/* All that receive receive the same. */
static int check_same_keys(struct work *work, uint32_t pod)
{
    const struct span *span = &work->shares[pod].wants;
    const struct entry *const *wants = &work->wants[span->begin];
    uint32_t at = 0;

    pst_assert(span->count > 0);
    pst_assert(span->begin + span->count <= work->want_count);
    for (uint32_t i = 0; i < work->wanted_count; i++, at++) {
        if (at == span->count || key_order(wants[at], work->wanted[i]) != 0)
            return refuse(
                work,
                "pods that receive must want the same keys: pod %s wants %s from others, and pod %s "
                "does not",
                ip_of(work, work->wanted[i]->pod), work->wanted[i]->tensor->key, ip_of(work, pod));
    }
    pst_assert(at == span->count);
    return 0;
}

static int check_once(struct work *work, uint32_t pod)
{
    const struct span *span = &work->shares[pod].wants;

    for (uint32_t i = span->begin + 1; i < span->begin + span->count; i++)
        if (key_order(work->wants[i], work->wants[i - 1]) == 0)
            return refuse(work, "pod %s wants the key %s twice from another pod, and may once",
                          ip_of(work, pod), work->wants[i]->tensor->key);
    return 0;
}

static const char *dtype_word(const struct pst_exchange_tensor *tensor)
{
    static const char prefix[] = "torch.";

    return tensor->dtype + (strncmp(tensor->dtype, prefix, sizeof(prefix) - 1) == 0 ? sizeof(prefix) - 1 : 0);
}

static void print_shape(const struct pst_exchange_tensor *tensor, char text[SHAPE_TEXT_BYTES])
{
    size_t bytes = (size_t)snprintf(text, SHAPE_TEXT_BYTES, "[");

    pst_assert(tensor->dimension_count <= PST_EXCHANGE_DIMENSIONS_MAX);
    for (uint32_t i = 0; i < tensor->dimension_count; i++)
        bytes += (size_t)snprintf(text + bytes, SHAPE_TEXT_BYTES - bytes, "%s%lld", i ? ", " : "",
                                  (long long)tensor->shape[i]);
    pst_assert(bytes < SHAPE_TEXT_BYTES - 1);
    snprintf(text + bytes, SHAPE_TEXT_BYTES - bytes, "]");
}

/* Whether what is sent fits where it goes. */
static int check_fits(struct work *work, const struct pst_exchange_transfer *transfer, uint32_t source,
                      uint32_t pod)
{
    const struct pst_exchange_tensor *from = transfer->source, *to = transfer->destination;
    char from_shape[SHAPE_TEXT_BYTES], to_shape[SHAPE_TEXT_BYTES];

    pst_assert(strcmp(from->key, to->key) == 0);
    if (from->dimension_count == to->dimension_count &&
        (from->dimension_count == 0 ||
         memcmp(from->shape, to->shape, from->dimension_count * sizeof(*from->shape)) == 0) &&
        strcmp(dtype_word(from), dtype_word(to)) == 0)
        return 0;
    print_shape(from, from_shape);
    print_shape(to, to_shape);
    return refuse(work, "the key %s: pod %s offers %s %s, and pod %s wants %s %s", from->key,
                  ip_of(work, source), from->dtype, from_shape, ip_of(work, pod), to->dtype, to_shape);
}

/* ---- the lists ---- */

static int plan_locals(struct work *work)
{
    int r = 0;

    for (uint32_t pod = 0; pod < work->plan->pod_count && r == 0; pod++) {
        const struct span *span = &work->shares[pod].locals;

        work->plan->pods[pod].locals = &work->locals[span->begin];
        work->plan->pods[pod].local_count = span->count;
        for (uint32_t i = 0; i < span->count && r == 0; i++)
            r = check_fits(work, &work->locals[span->begin + i], pod, pod);
    }
    return r;
}

/* What the source has of the keys that are wanted. */
static void plan_sends(struct work *work, uint32_t source)
{
    const struct span *span = &work->shares[source].offers;
    struct pst_exchange_pod *pod = &work->plan->pods[source];
    uint32_t at = 0;

    pst_assert(work->remote);
    for (uint32_t i = 0; i < work->wanted_count; i++) {
        while (key_order(work->offers[span->begin + at], work->wanted[i]) < 0)
            at++;
        pst_assert(at < span->count);
        pst_assert(key_order(work->offers[span->begin + at], work->wanted[i]) == 0);
        work->remote[i] = (struct pst_exchange_transfer){.source = work->offers[span->begin + at]->tensor};
    }
    pod->sends = work->remote;
    pod->send_count = work->wanted_count;
}

static int plan_receives(struct work *work, uint32_t source, uint32_t index,
                         struct pst_exchange_transfer *list)
{
    struct pst_exchange_pod *pod = &work->plan->pods[index];
    const struct span *span = &work->shares[index].wants;
    int r = check_once(work, index);

    pst_assert(pod->rank > 0);
    pst_assert(index != source);
    if (r == 0)
        r = check_same_keys(work, index);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < work->wanted_count && r == 0; i++) {
        list[i] =
            (struct pst_exchange_transfer){work->remote[i].source, work->wants[span->begin + i]->tensor};
        r = check_fits(work, &list[i], source, index);
    }
    pod->receives = list;
    pod->receive_count = work->wanted_count;
    pod->master_ip = ip_of(work, source);
    return r;
}

static int plan_remote(struct work *work)
{
    struct pst_exchange_plan *plan = work->plan;
    uint32_t source = 0, world_size = 1;
    int r = find_source(work, &source);

    if (r < 0)
        return r;
    /* Each receiver wants all that is wanted, or is refused: no list is longer than that. */
    work->remote = calloc((size_t)work->wanted_count + work->want_count, sizeof(*work->remote));
    if (!work->remote)
        return -ENOMEM;
    plan_sends(work, source);
    for (uint32_t pod = 0; pod < plan->pod_count && r == 0; pod++) {
        if (work->shares[pod].wants.count == 0)
            continue;
        pst_assert(pod != source); /* it has all of them itself */
        plan->pods[pod].rank = world_size;
        r = plan_receives(work, source, pod, work->remote + (size_t)world_size * work->wanted_count);
        world_size++;
    }
    pst_assert(r < 0 || world_size > 1);
    for (uint32_t pod = 0; pod < plan->pod_count && r == 0; pod++)
        if (pod == source || plan->pods[pod].rank > 0)
            plan->pods[pod].world_size = world_size;
    return r;
}

static int plan_all(struct work *work)
{
    int r;

    if (work->exchange->putters == 0)
        return refuse(work, "the group has no putter");
    if (work->exchange->getters == 0)
        return refuse(work, "the group has no getter");
    r = number_pods(work);
    if (r == 0)
        r = collect(work);
    if (r < 0)
        return r;
    sort_out(work);
    find_wanted(work);
    r = check_all_offered(work);
    if (r == 0 && work->wanted_count > 0)
        r = plan_remote(work);
    return r < 0 ? r : plan_locals(work);
}

/* ---- beginning and end ---- */

/* The plan, and the lists of transfers that it shows. */
struct kept {
    struct pst_exchange_plan plan;
    struct pst_exchange_transfer *locals, *remote;
};

int pst_exchange_plan_open(const struct pst_exchange *exchange, struct pst_exchange_plan **out, char **fault)
{
    struct kept *kept = calloc(1, sizeof(*kept));
    struct work work = {.exchange = exchange, .fault = fault};
    int r;

    pst_assert(exchange->state >= PST_EXCHANGE_CLOSED);
    *fault = NULL;
    if (!kept)
        return -ENOMEM;
    work.plan = &kept->plan;
    r = plan_all(&work);
    kept->locals = work.locals;
    kept->remote = work.remote;
    free(work.shares);
    free(work.entries);
    free(work.offers);
    free(work.wants);
    free(work.wanted);
    if (r < 0) {
        pst_exchange_plan_close(&kept->plan);
        return r;
    }
    *out = &kept->plan;
    return 0;
}

struct pst_exchange_plan *pst_exchange_plan_close(struct pst_exchange_plan *plan)
{
    struct kept *kept;

    if (!plan)
        return NULL;
    kept = pst_container_of(plan, struct kept, plan);
    free(kept->locals);
    free(kept->remote);
    free(plan->pods);
    free(plan->pod_of);
    free(kept);
    return NULL;
}
