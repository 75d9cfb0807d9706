/* SPDX-License-Identifier: Apache-2.0 */
/*
 * round_ways.c: the two ways in which a round's tensors go. Whatever a rank waits for meanwhile, it looks at
 * the meeting: an end of one of the others is the round's.
 */
#include "agent/pod/rounds_priv.h"

#include "agent/round/mover.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/ms.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>

struct run {
    struct frame *frame;
    const struct round_order *order;
    const struct pod_patience *patience;
    struct mover *mover;           /* NULL: this rank has no NCCL, */
    char no_nccl[PST_FAULT_BYTES]; /* because of this */
    struct meeting *meeting;
    struct pst_gpu_devices devices;
    char *fault;
};

static int run_fail(struct run *run, int error, const char *why)
{
    pst_assert(error < 0);
    snprintf(run->fault, PST_FAULT_BYTES, "%.200s", why);
    return error;
}

static void run_log(struct run *run, const char *what, const char *why)
{
    char line[2 * PST_FAULT_BYTES];

    pst_assert(why);
    snprintf(line, sizeof(line), "agent: group '%.100s': %s%.200s", run->order->group, what, why);
    pst_printable(line);
    run->frame->pod->log(run->frame->pod->log_ctx, line);
}

/* ---- within the pod ---- */

static int run_copies(struct run *run)
{
    char why[PST_FAULT_BYTES];
    int r = 0;

    pst_assert(run->order->copy_count == 0 || run->order->copies);
    for (uint32_t i = 0; r == 0 && i < run->order->copy_count; i++) {
        const struct round_copy *copy = &run->order->copies[i];

        r = pst_gpu_place_copy(&run->devices, &copy->to, &copy->from, why);
        if (r < 0)
            return run_fail(run, r, why);
        if (run->patience->is_over(run->patience->ctx))
            return run_fail(run, -ECANCELED, "the process that asked for it has gone");
    }
    return r;
}

/* ---- by NCCL ---- */

/* Why these tensors cannot go by NCCL; NULL: perhaps they can. */
static const char *nccl_excuse(const struct pst_gpu_place *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i].handle.kind != PST_GPU_CUDA)
            return "its tensors lie in the host's memory";
        if (tensors[i].ordinal != tensors[0].ordinal)
            return "its tensors lie on several GPUs";
    }
    return count > 0 ? NULL : "its tensors are empty";
}

static int mover_await(struct run *run)
{
    struct pollfd said = {.fd = mover_fd(run->mover), .events = POLLIN};
    uint64_t begun_ms = pst_now_ms();
    uint64_t begin_ms = run->order->timeout_ms / 2; /* the others wait meanwhile */
    int r = 0;

    while (r == 0 && !mover_is_ready(run->mover)) {
        poll(&said, 1, ROUND_LOOK_MS);
        r = mover_hear(run->mover, run->no_nccl);
        if (r == 0 && !mover_is_ready(run->mover) && pst_now_ms() > begun_ms + begin_ms) {
            snprintf(run->no_nccl, sizeof(run->no_nccl), "NCCL did not begin within %llu s",
                     (unsigned long long)begin_ms / 1000);
            r = -ETIMEDOUT;
        }
        if (run->patience->is_over(run->patience->ctx))
            return run_fail(run, -ECANCELED, "the process that asked for it has gone");
    }
    if (r < 0)
        run->mover = mover_close(run->mover);
    return 0;
}

/* Starts NCCL, if it may be of use. Return: 0, also without; -ECANCELED. */
static int prepare_nccl(struct run *run)
{
    const struct round_order *order = run->order;
    pst_cleanup_free struct pst_gpu_place *tensors = calloc(order->count, sizeof(*tensors));
    struct mover_plan plan = {.rank = order->rank, .world_size = order->world_size, .tensors = tensors};
    const char *excuse;

    pst_assert(!run->mover && order->count > 0);
    for (uint32_t i = 0; tensors && i < order->count; i++)
        if (!pst_gpu_tensor_is_empty(&order->tensors[i].layout)) /* for all ranks alike */
            tensors[plan.count++] = order->tensors[i];
    excuse = tensors ? nccl_excuse(tensors, plan.count) : strerror(ENOMEM);
    if (excuse) {
        snprintf(run->no_nccl, sizeof(run->no_nccl), "%s", excuse);
        return 0;
    }
    if (mover_open(&plan, &run->mover, run->no_nccl) < 0)
        return 0;
    return mover_await(run);
}

static int move_by_nccl(struct run *run, const struct meeting_way *way)
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), ROUND_MOVE_MS_MAX);
    int r;

    if (!run->mover)
        return run_fail(run, -EPROTO, "rank 0 wants NCCL, which this rank has not");
    r = mover_go(run->mover, way->id, run->fault);
    while (r == 0 && !mover_is_done(run->mover)) {
        r = meeting_look(run->meeting, mover_fd(run->mover), ROUND_LOOK_MS, run->fault);
        if (r == 0)
            r = mover_hear(run->mover, run->fault);
        if (r == 0 && pst_now_ms() > mover_moved_ms(run->mover) + run->order->timeout_ms) {
            snprintf(run->fault, PST_FAULT_BYTES, "NCCL has moved nothing for %llu s",
                     (unsigned long long)run->order->timeout_ms / 1000);
            r = -ETIMEDOUT;
        }
        if (r == 0 && pst_now_ns() > until_ns)
            r = run_fail(run, -ETIMEDOUT, "NCCL was not done within an hour");
    }
    return r;
}

/* ---- in a row ---- */

static bool row_is_over(void *ctx)
{
    struct run *run = ctx;

    pst_assert(run->meeting);
    return meeting_look(run->meeting, -1, 0, run->fault) < 0;
}

/* What has come, on its way into this rank's tensors, in a thread of its own: one that is large, or lies
 * apart, takes longer than the others wait for a word. */
struct landing {
    struct run *run;
    const struct pod_reception *reception;
    struct pod_batch batch;
    _Atomic bool stop;
    int done_fd;
    int result;
    char fault[PST_FAULT_BYTES];
};

static void *landing_copy(void *arg)
{
    struct landing *landing = arg;
    const struct round_order *order = landing->run->order;
    char why[PST_FAULT_BYTES];
    int r = 0;

    pst_assert(landing->batch.count == order->count);
    for (uint32_t i = 0; r == 0 && i < order->count && !landing->stop; i++) {
        const struct pod_tensor *came = landing->batch.tensors[i];
        struct pst_gpu_place from;

        tensor_place(came, &from);
        from.fd = reception_memories(landing->reception)->fds[came->handle.descriptor];
        r = pst_gpu_place_copy(&landing->run->devices, &order->tensors[i], &from, why);
        if (r < 0)
            snprintf(landing->fault, PST_FAULT_BYTES, "tensor '%.100s': %.100s", came->key, why);
    }
    landing->result = r;
    pst_event_set(landing->done_fd);
    return NULL;
}

static int landing_wait(struct run *run, struct landing *landing)
{
    struct pollfd done = {.fd = landing->done_fd, .events = POLLIN};
    pthread_t thread;
    int r = -pthread_create(&thread, NULL, landing_copy, landing);

    if (r < 0)
        return run_fail(run, r, strerror(-r));
    while (r == 0 && poll(&done, 1, 0) == 0)
        r = meeting_look(run->meeting, landing->done_fd, ROUND_LOOK_MS, run->fault);
    landing->stop = true;
    pst_assert(pthread_join(thread, NULL) == 0);
    return r < 0 || landing->result == 0 ? r : run_fail(run, landing->result, landing->fault);
}

static int copy_received(struct run *run, const struct pod_reception *reception)
{
    const struct owner nobody = {.pid = 0};
    struct landing landing = {.run = run, .reception = reception, .done_fd = eventfd(0, EFD_CLOEXEC)};
    int r;

    pst_assert(run->order->rank > 0);
    r = landing.done_fd < 0 ? run_fail(run, -errno, strerror(errno)) : 0;
    if (r == 0)
        r = frame_parse_received(run->frame, reception, &nobody, "", &landing.batch, run->fault);
    if (r == 0 && landing.batch.count != run->order->count)
        r = run_fail(run, -EPROTO, "other tensors have come than were expected");
    if (r == 0)
        r = landing_wait(run, &landing);
    tensors_free(&landing.batch);
    pst_close_fd(&landing.done_fd);
    return r;
}

static int receiver_in_row(struct run *run, const struct meeting_way *way)
{
    const struct pod_patience patience = {row_is_over, run};
    struct pod_order order = {.port = way->port,
                              .members = run->order->world_size - 1,
                              .timeout_ms = (uint32_t)run->order->timeout_ms};
    struct pod_reception *reception = NULL;
    char why[PST_FAULT_BYTES] = "";
    int r;

    pst_assert(!way->by_nccl && way->port > 0);
    snprintf(order.group, sizeof(order.group), "%s", way->group);
    snprintf(order.key, sizeof(order.key), "%s", way->group);
    snprintf(order.host, sizeof(order.host), "%s", run->order->host);
    r = receptions_await(run->frame->pod, &patience, &order, &reception, why);
    if (r < 0) {
        int met = meeting_look(run->meeting, -1, ROUND_LOOK_MS, run->fault); /* it may know better why */

        return met < 0 ? met : run_fail(run, r, why);
    }
    r = copy_received(run, reception);
    reception_drop(run->frame->pod, reception);
    return r;
}

/* ---- rank 0 ---- */

static int source_in_row(struct run *run, struct meeting_way *way)
{
    const struct round_order *order = run->order;
    uint8_t name[(ROUND_WAY_GROUP_BYTES - 1) / 2];
    int r;

    pst_assert(order->rank == 0 && order->keys);
    pst_random(name, sizeof(name));
    pst_hex_print(name, sizeof(name), way->group);
    r = casts_lend(run->frame->pod, way->group, (const char *const *)order->keys, order->count, &way->port,
                   run->fault);
    if (r < 0)
        return meeting_end(run->meeting, r, run->fault);
    r = meeting_begin(run->meeting, way, run->fault);
    r = meeting_end(run->meeting, r, run->fault);
    casts_withdraw(run->frame->pod, way->group);
    return r;
}

static int run_as_source(struct run *run, enum round_way *out)
{
    struct meeting_way way = {.by_nccl = run->mover && !meeting_no_nccl(run->meeting)};
    int r;

    pst_assert(run->mover || run->no_nccl[0]);
    *out = way.by_nccl ? ROUND_BY_NCCL : ROUND_BY_ROW;
    if (!way.by_nccl && run->order->tensors[0].handle.kind == PST_GPU_CUDA)
        run_log(run, "through the host's memory, without NCCL: ",
                run->mover ? meeting_no_nccl(run->meeting) : run->no_nccl);
    if (!way.by_nccl)
        return source_in_row(run, &way);
    memcpy(way.id, mover_id(run->mover), sizeof(way.id));
    r = meeting_begin(run->meeting, &way, run->fault);
    if (r == 0)
        r = move_by_nccl(run, &way);
    return meeting_end(run->meeting, r, run->fault);
}

/* ---- the others ---- */

static int run_as_receiver(struct run *run, enum round_way *out)
{
    struct meeting_way way;
    int r;

    pst_assert(run->order->rank > 0);
    r = meeting_await(run->meeting, &way, run->fault);
    if (r == 0) {
        *out = way.by_nccl ? ROUND_BY_NCCL : ROUND_BY_ROW;
        r = way.by_nccl ? move_by_nccl(run, &way) : receiver_in_row(run, &way);
    }
    return meeting_end(run->meeting, r, run->fault);
}

/* ---- a round ---- */

static int run_meet(struct run *run)
{
    const struct round_order *order = run->order;
    const struct pst_pod *pod = run->frame->pod;
    const struct meeting_settings settings = {.group = order->meeting,
                                              .host = order->rank == 0 ? pod->rsync_host : order->host,
                                              .port = order->port,
                                              .rank = order->rank,
                                              .world_size = order->world_size,
                                              .digest = order->digest,
                                              .no_nccl = run->mover ? NULL : run->no_nccl,
                                              .token = {pod->token, pod->token_bytes},
                                              .timeout_ms = order->timeout_ms,
                                              .is_over = run->patience->is_over,
                                              .ctx = run->patience->ctx};

    pst_assert(!run->meeting);
    return meeting_open(&settings, &run->meeting, run->fault);
}

int round_run(struct frame *frame, const struct round_order *order, const struct pod_patience *patience,
              enum round_way *way, char fault[PST_FAULT_BYTES])
{
    struct run run = {.frame = frame, .order = order, .patience = patience, .fault = fault};
    int r = run_copies(&run);

    *way = ROUND_COPIED;
    if (r == 0 && order->count > 0) {
        r = prepare_nccl(&run);
        if (r == 0)
            r = run_meet(&run);
        if (r == 0)
            r = order->rank == 0 ? run_as_source(&run, way) : run_as_receiver(&run, way);
    }
    meeting_close(run.meeting);
    mover_close(run.mover);
    pst_gpu_devices_close(&run.devices);
    if (r < 0)
        run_log(&run, "it failed: ", fault);
    return r;
}
