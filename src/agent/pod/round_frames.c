/* SPDX-License-Identifier: Apache-2.0 */
/*
 * round_frames.c: `execute_broadcast_group`, whose lists are those that the store gives each pod of a group.
 * A tensor that is sent is one that was put here. One that is received goes where its "dest_ipc_handle" says:
 * a handle of a GPU's memory, or an object with such an "ipc_handle" and its "device", or with the "key" of a
 * tensor that was put here.
 */
#include "agent/pod/rounds_priv.h"

#include <arpa/inet.h>
#include <stdio.h>

#define MEET_S 60.0 /* until the others have come, of a frame that does not say */

/* A tensor that moves between pods. */
struct moving {
    char *key;        /* by which the pods know it */
    char *source_key; /* under which it was put */
    struct pst_gpu_place place;
};

struct parsing {
    struct frame *frame;
    struct round_order *order;
    struct moving *moving;
    uint64_t memories[POD_FDS_MAX]; /* whose descriptors the order has */
    struct pst_gpu_place *place;    /* of the tensor that is looked up */
};

static int refuse(struct frame *frame, const char *text)
{
    snprintf(frame->fault, sizeof(frame->fault), "%s", text);
    return -EINVAL;
}

static int refuse_tensor(struct frame *frame, int error, const char *key, const char *why)
{
    snprintf(frame->fault, sizeof(frame->fault), "tensor '%.100s': %.120s", key, why);
    return error;
}

/* ---- places ---- */

/* A visit of a tensor. Each memory has one descriptor, which is the order's. */
static int place_visit(void *ctx, const struct pod_tensor *tensor, int fd, uint64_t memory)
{
    struct parsing *parsing = ctx;
    struct round_order *order = parsing->order;
    int kept;

    pst_assert(parsing->place);
    tensor_place(tensor, parsing->place);
    if (fd < 0)
        return 0;
    kept = fds_keep(&order->memories, parsing->memories, fd, memory);
    if (kept < 0)
        return kept;
    parsing->place->fd = order->memories.fds[kept];
    return 0;
}

/* Of a tensor that was put here, which is as @object says. */
static int place_of_key(struct parsing *parsing, const char *key, const struct pst_json *object,
                        struct pst_gpu_place *place)
{
    struct frame *frame = parsing->frame;
    int r;

    pst_assert(*key);
    parsing->place = place;
    r = tensors_find(frame->pod, key, place_visit, parsing, frame->fault);
    if (r == -E2BIG)
        return refuse_tensor(frame, r, key, "the group's tensors lie in too many memories");
    return r < 0 ? r : frame_check_said(frame, key, object, &place->layout);
}

static int place_of_destination(struct parsing *parsing, const char *key, const struct pst_json *object,
                                struct pst_gpu_place *place)
{
    const struct pst_json *said = pst_json_get(object, "dest_ipc_handle"), *handle = said;
    struct frame *frame = parsing->frame;
    char named[PST_KEY_CAP];
    int r;

    pst_assert(parsing->order);
    if (pst_json_get(said, "key")) {
        r = frame_key_of(frame, said, "key", named);
        return r < 0 ? r : place_of_key(parsing, named, object, place);
    }
    if (pst_json_is_object(said))
        handle = pst_json_get(said, "ipc_handle");
    if (!pst_json_text(handle))
        return refuse_tensor(frame, -EINVAL, key, "'dest_ipc_handle' does not say where it goes");
    r = frame_parse_place(frame, key, handle, pst_json_get(said, "device"), object, place);
    if (r == 0 && place->handle.kind == PST_GPU_HOST)
        r = refuse_tensor(frame, -EINVAL, key,
                          "'dest_ipc_handle' must name a tensor of the host's memory by its key");
    return r;
}

/* "src_tensor_key", or the key itself. */
static int source_key(struct frame *frame, const struct pst_json *object, char key[PST_KEY_CAP])
{
    return frame_key_of(frame, object, pst_json_get(object, "src_tensor_key") ? "src_tensor_key" : "key",
                        key);
}

/* ---- lists ---- */

static int list_of(struct frame *frame, const char *name, const struct pst_json **first, uint32_t *count)
{
    const struct pst_json *list = pst_json_get(frame->asked, name);

    *first = NULL;
    *count = 0;
    if (!list || pst_json_is_null(list))
        return 0;
    if (!pst_json_is_array(list) || pst_json_count(list) > POD_ROUND_TENSORS_MAX) {
        snprintf(frame->fault, sizeof(frame->fault), "'%s' must be a list of at most %d tensors", name,
                 POD_ROUND_TENSORS_MAX);
        return -EINVAL;
    }
    *first = pst_json_first(list);
    *count = (uint32_t)pst_json_count(list);
    return 0;
}

/* "to_ranks", if there is one, must be all other ranks. */
static int check_to_ranks(struct frame *frame, const struct pst_json *object, uint32_t world_size)
{
    const struct pst_json *ranks = pst_json_get(object, "to_ranks");
    pst_cleanup_free bool *there = calloc(world_size, sizeof(*there));
    bool all = pst_json_count(ranks) + 1 == world_size;

    pst_assert(world_size > 1);
    if (!there)
        return -ENOMEM;
    for (const struct pst_json *one = pst_json_first(ranks); one && all; one = pst_json_next(one)) {
        int64_t rank = 0;

        all = pst_json_integer(one, &rank) && rank >= 1 && rank < world_size && !there[rank];
        if (all)
            there[rank] = true;
    }
    return all || !ranks ? 0 : refuse(frame, "'to_ranks' must be all ranks but 0: what is sent goes to all");
}

static int parse_send(struct parsing *parsing, const struct pst_json *object, struct moving *out)
{
    struct frame *frame = parsing->frame;
    char key[PST_KEY_CAP], source[PST_KEY_CAP];
    int r;

    pst_assert(parsing->order->rank == 0);
    r = frame_key_of(frame, object, "key", key);

    if (r == 0)
        r = source_key(frame, object, source);
    if (r == 0)
        r = check_to_ranks(frame, object, parsing->order->world_size);
    if (r == 0)
        r = place_of_key(parsing, source, object, &out->place);
    if (r < 0)
        return r;
    out->key = strdup(key);
    out->source_key = strdup(source);
    return out->key && out->source_key ? 0 : -ENOMEM;
}

static int parse_receive(struct parsing *parsing, const struct pst_json *object, struct moving *out)
{
    struct frame *frame = parsing->frame;
    char key[PST_KEY_CAP];
    int64_t from = -1;
    int r;

    pst_assert(parsing->order->rank > 0);
    r = frame_key_of(frame, object, "key", key);

    if (r == 0 && (!pst_json_integer(pst_json_get(object, "from_rank"), &from) || from != 0))
        r = refuse_tensor(frame, -EINVAL, key, "'from_rank' must be 0, which sends to all");
    if (r == 0)
        r = place_of_destination(parsing, key, object, &out->place);
    if (r < 0)
        return r;
    out->key = strdup(key);
    return out->key ? 0 : -ENOMEM;
}

static int parse_moving(struct parsing *parsing)
{
    struct round_order *order = parsing->order;
    const char *name = order->rank == 0 ? "sends" : "receives",
               *other = order->rank == 0 ? "receives" : "sends";
    const struct pst_json *one;
    uint32_t count, nothing;
    int r = list_of(parsing->frame, other, &one, &nothing);

    if (r == 0 && nothing > 0)
        r = refuse(parsing->frame, "rank 0 must have the 'sends' of a group, and the other ranks 'receives'");
    if (r == 0)
        r = list_of(parsing->frame, name, &one, &count);
    if (r < 0)
        return r;
    pst_assert(order->count == 0 && !parsing->moving);
    if (count > 0 && order->world_size < 2)
        return refuse(parsing->frame, "'world_size' is 1: there is nobody to send to");
    parsing->moving = calloc(count + 1, sizeof(*parsing->moving));
    if (!parsing->moving)
        return -ENOMEM;
    for (; r == 0 && one; one = pst_json_next(one)) {
        struct moving *moving = &parsing->moving[order->count++];

        r = order->rank == 0 ? parse_send(parsing, one, moving) : parse_receive(parsing, one, moving);
    }
    return r;
}

static int parse_copies(struct parsing *parsing)
{
    struct round_order *order = parsing->order;
    struct frame *frame = parsing->frame;
    const struct pst_json *one;
    uint32_t count;
    int r = list_of(frame, "local_transfers", &one, &count);

    if (r < 0)
        return r;
    pst_assert(order->copy_count == 0 && !order->copies);
    order->copies = calloc(count + 1, sizeof(*order->copies));
    if (!order->copies)
        return -ENOMEM;
    for (; r == 0 && one; one = pst_json_next(one)) {
        struct round_copy *copy = &order->copies[order->copy_count++];
        char key[PST_KEY_CAP];

        r = source_key(frame, one, key);
        if (r == 0)
            r = place_of_key(parsing, key, one, &copy->from);
        if (r == 0)
            r = place_of_destination(parsing, key, one, &copy->to);
    }
    return r;
}

/* ---- what all ranks must agree on ---- */

static int moving_order(const void *left, const void *right)
{
    pst_assert(((const struct moving *)left)->key && ((const struct moving *)right)->key);
    return strcmp(((const struct moving *)left)->key, ((const struct moving *)right)->key);
}

static struct pst_hash128 hash_more(struct pst_hash128 before, const void *data, size_t bytes)
{
    struct pst_hash128 more = pst_hash128(data, bytes, before.low);

    return (struct pst_hash128){more.low, more.high ^ before.high};
}

static struct pst_hash128 hash_moving(struct pst_hash128 hash, const struct moving *moving)
{
    const struct pst_gpu_tensor *layout = &moving->place.layout;

    pst_assert(layout->rank <= PST_GPU_RANK_MAX);
    hash = hash_more(hash, moving->key, strlen(moving->key) + 1);
    hash = hash_more(hash, layout->dtype, strlen(layout->dtype) + 1);
    return hash_more(hash, layout->shape, layout->rank * sizeof(layout->shape[0]));
}

/* Sorts what moves, and splits it into what the ways need. */
static int moving_settle(struct parsing *parsing)
{
    struct round_order *order = parsing->order;
    struct pst_hash128 hash = {.low = order->count};

    order->tensors = calloc(order->count + 1, sizeof(*order->tensors));
    order->keys = calloc(order->count + 1, sizeof(*order->keys));
    if (!order->tensors || !order->keys)
        return -ENOMEM;
    qsort(parsing->moving, order->count, sizeof(*parsing->moving), moving_order);
    for (uint32_t i = 0; i < order->count; i++) {
        const struct moving *moving = &parsing->moving[i];

        if (i > 0 && moving_order(moving, moving - 1) == 0)
            return refuse_tensor(parsing->frame, -EINVAL, moving->key, "it comes twice");
        hash = hash_moving(hash, moving);
    }
    for (uint32_t i = 0; i < order->count; i++) {
        pst_assert((order->rank == 0) == (parsing->moving[i].source_key != NULL));
        order->tensors[i] = parsing->moving[i].place;
        order->keys[i] = parsing->moving[i].source_key;
        parsing->moving[i].source_key = NULL;
    }
    snprintf(order->digest, sizeof(order->digest), "%016llx%016llx", (unsigned long long)hash.high,
             (unsigned long long)hash.low);
    return 0;
}

static void moving_free(struct parsing *parsing)
{
    for (uint32_t i = 0; parsing->moving && i < parsing->order->count; i++) {
        free(parsing->moving[i].key);
        free(parsing->moving[i].source_key);
    }
    free(parsing->moving);
}

static void order_free(struct round_order *order)
{
    for (uint32_t i = 0; order->keys && i < order->count; i++)
        free(order->keys[i]);
    fds_close(&order->memories);
    free(order->tensors);
    free(order->keys);
    free(order->copies);
}

/* ---- the frame ---- */

static int name_meeting(struct frame *frame, struct round_order *order)
{
    const struct pst_json *said = pst_json_get(frame->asked, "round_id");
    const char *id = pst_json_text(said);

    if (said && !pst_json_is_null(said) && (!id || strlen(id) >= POD_ROUND_ID_BYTES))
        return refuse(frame, "'round_id' must be a text of at most 64 bytes");
    for (const char *at = id; at && *at; at++)
        if ((unsigned char)*at < ' ')
            return refuse(frame, "'round_id' has control characters");
    pst_assert(strlen(order->group) <= PST_TREE_GROUP_BYTES_MAX);
    snprintf(order->meeting, sizeof(order->meeting), "%s%s%s", order->group, id ? " " : "", id ? id : "");
    return 0;
}

static int parse_ranks(struct frame *frame, struct round_order *order)
{
    int64_t rank = -1, world_size = 0, port = 0;
    struct in_addr numeric;
    int r;

    order->group = frame_group(frame);
    order->host = pst_json_text(pst_json_get(frame->asked, "master_addr"));
    if (!order->group)
        return -EINVAL;
    for (const char *at = order->group; *at; at++)
        if ((unsigned char)*at < ' ')
            return refuse(frame, "'group_id' cannot be a group's name: it has control characters");
    if (!pst_json_integer(pst_json_get(frame->asked, "world_size"), &world_size) || world_size < 1 ||
        world_size > ROUND_RANKS_MAX || !pst_json_integer(pst_json_get(frame->asked, "rank"), &rank) ||
        rank < 0 || rank >= world_size)
        return refuse(frame, "'rank' and 'world_size' must be a rank of at most 4096 and their number");
    if (!order->host || inet_pton(AF_INET, order->host, &numeric) != 1 ||
        !pst_json_integer(pst_json_get(frame->asked, "master_port"), &port) || port < 1 || port > UINT16_MAX)
        return refuse(frame, "'master_addr' and 'master_port' must be an IPv4 address and a port");
    r = name_meeting(frame, order);
    if (r < 0)
        return r;
    pst_assert(rank < world_size);
    order->rank = (uint32_t)rank;
    order->world_size = (uint32_t)world_size;
    order->port = (uint16_t)port;
    return frame_timeout(frame, MEET_S, &order->timeout_ms);
}

static int round_execute(struct frame *frame, const struct pod_patience *patience, enum round_way *way,
                         char fault[PST_FAULT_BYTES])
{
    struct round_order order = {.rank = 0};
    struct parsing parsing = {.frame = frame, .order = &order};
    int r = parse_ranks(frame, &order);

    if (r == 0)
        r = parse_moving(&parsing);
    if (r == 0)
        r = parse_copies(&parsing);
    if (r == 0)
        r = moving_settle(&parsing);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%s", frame->fault[0] ? frame->fault : strerror(-r));
    moving_free(&parsing);
    if (r == 0)
        r = round_run(frame, &order, patience, way, fault);
    order_free(&order);
    return r;
}

/* A hash of what all participants of a round say alike. */
static int round_words(const struct frame *frame, struct pst_hash128 *id)
{
    static const char *const names[] = {"group_id",   "round_id",    "rank",
                                        "world_size", "master_addr", "master_port",
                                        "sends",      "receives",    "local_transfers"};

    *id = (struct pst_hash128){0};
    for (size_t i = 0; i < pst_count_of(names); i++) {
        const struct pst_json *member = pst_json_get(frame->asked, names[i]);
        pst_cleanup_free char *text = member ? pst_json_print(member) : strdup("");

        if (!text)
            return -ENOMEM;
        *id = hash_more(*id, text, strlen(text) + 1);
    }
    return 0;
}

static int participant_of(struct frame *frame, char participant[POD_PARTICIPANT_BYTES])
{
    const struct pst_json *said = pst_json_get(frame->asked, "participant");
    const char *text = pst_json_text(said);

    if (!said || pst_json_is_null(said)) {
        snprintf(participant, POD_PARTICIPANT_BYTES, "%d", (int)frame->caller->pid);
        return 0;
    }
    if (!text || !*text || strlen(text) >= POD_PARTICIPANT_BYTES)
        return refuse(frame, "'participant' must be a text of 1 to 64 bytes");
    snprintf(participant, POD_PARTICIPANT_BYTES, "%s", text);
    return 0;
}

int frame_execute_group(struct frame *frame)
{
    static const char *const ways[] = {
        [ROUND_COPIED] = "copy", [ROUND_BY_NCCL] = "nccl", [ROUND_BY_ROW] = "row"};
    char participant[POD_PARTICIPANT_BYTES];
    enum round_way way = ROUND_COPIED;
    struct round_order checked = {.rank = 0};
    struct pst_hash128 id;
    int r = parse_ranks(frame, &checked);

    pst_assert(frame->caller->local);
    pst_assert(frame->go->count == 0);
    if (r == 0)
        r = participant_of(frame, participant);
    if (r == 0)
        r = round_words(frame, &id);
    if (r == 0)
        r = rounds_share(frame, &id, pst_json_text(pst_json_get(frame->asked, "round_id")) != NULL,
                         participant, round_execute, &way);
    if (r == 0)
        r = pst_json_add_text(frame->answer, "group_id", checked.group);
    if (r == 0)
        r = pst_json_add_integer(frame->answer, "rank", checked.rank);
    return r < 0 ? r : pst_json_add_text(frame->answer, "way", ways[way]);
}
