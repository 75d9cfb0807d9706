/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_agent_frame.c: frames to a pod's agent, several in one input, each behind a byte that says who sends
 * it. Every one is answered by an object with a status; what is offered and what rsync serves stay the same
 * number. With each come three descriptors: memory that is sealed, memory that is not, and no memory.
 * There is no rsync daemon, no port, nobody who sends a broadcast, and no other rank to meet; whoever would
 * have to wait for a tree has gone.
 */
#include "fuzz.h"

#include "agent/pod/rounds_priv.h"
#include "agent/round/mover.h"
#include "files/relay/relay.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>

static struct pst_rsyncd {
    uint32_t modules;
} rsyncd;
static int gone_fd = -1;
static struct pod_fds came;

int __wrap_pst_rsyncd_open(const struct pst_rsyncd_settings *settings, struct pst_rsyncd **out, char *fault);
uint16_t __wrap_pst_rsyncd_port(const struct pst_rsyncd *d);
int __wrap_pst_rsyncd_add(struct pst_rsyncd *d, const char *name, const char *path, int flags);
int __wrap_pst_rsyncd_remove(struct pst_rsyncd *d, const char *name);
struct pst_rsyncd *__wrap_pst_rsyncd_close(struct pst_rsyncd *d);

int __wrap_pst_rsyncd_open(const struct pst_rsyncd_settings *settings, struct pst_rsyncd **out, char *fault)
{
    (void)fault;
    pst_assert(settings->folder);
    rsyncd.modules = 0;
    *out = &rsyncd;
    return 0;
}

uint16_t __wrap_pst_rsyncd_port(const struct pst_rsyncd *d)
{
    pst_assert(d == &rsyncd);
    return 873;
}

int __wrap_pst_rsyncd_add(struct pst_rsyncd *d, const char *name, const char *path, int flags)
{
    pst_assert(d == &rsyncd && *name && !(flags & PST_RSYNCD_WRITABLE));
    pst_assert(path[0] == '/' && path[1] && !strstr(path, "/../") && strncmp(path, "/proc/", 6) != 0);
    d->modules++;
    return 0;
}

int __wrap_pst_rsyncd_remove(struct pst_rsyncd *d, const char *name)
{
    pst_assert(d == &rsyncd && *name && d->modules > 0);
    d->modules--;
    return 0;
}

struct pst_rsyncd *__wrap_pst_rsyncd_close(struct pst_rsyncd *d)
{
    pst_assert(!d || d == &rsyncd);
    return NULL;
}

int __wrap_pst_carry_server_open(const struct pst_carry_server_settings *settings,
                                 struct pst_carry_server **out, char *fault);
int __wrap_pst_broadcast_receive(const struct pst_broadcast_options *options,
                                 const struct pst_broadcast_sink *sink, void *sink_ctx, char *fault);

int __wrap_pst_carry_server_open(const struct pst_carry_server_settings *settings,
                                 struct pst_carry_server **out, char *fault)
{
    (void)out;
    (void)fault;
    pst_assert(settings->serve && settings->resolve);
    return -EADDRINUSE;
}

int __wrap_pst_broadcast_receive(const struct pst_broadcast_options *options,
                                 const struct pst_broadcast_sink *sink, void *sink_ctx, char *fault)
{
    (void)fault;
    pst_assert(options->port > 0 && *options->group && *options->name && sink->begin && sink_ctx);
    return -ECONNREFUSED;
}

int __wrap_meeting_open(const struct meeting_settings *settings, struct meeting **out, char *fault);
int __wrap_mover_open(const struct mover_plan *plan, struct mover **out, char *fault);

/* Nobody else comes. What the agent would have said to them is in order. */
int __wrap_meeting_open(const struct meeting_settings *settings, struct meeting **out, char *fault)
{
    pst_assert(!*out);
    pst_assert(settings->rank < settings->world_size && settings->world_size <= ROUND_RANKS_MAX);
    pst_assert(settings->world_size > 1 && settings->port > 0 && *settings->group && settings->host);
    pst_assert(strlen(settings->digest) == ROUND_DIGEST_BYTES - 1);
    pst_assert(settings->no_nccl && *settings->no_nccl); /* there is no mover */
    settings->is_over(settings->ctx);
    snprintf(fault, PST_FAULT_BYTES, "nobody came");
    return -ETIMEDOUT;
}

/* Asked only for tensors of one GPU. */
int __wrap_mover_open(const struct mover_plan *plan, struct mover **out, char *fault)
{
    pst_assert(!*out && plan->count > 0 && plan->rank < plan->world_size);
    for (uint32_t i = 0; i < plan->count; i++) {
        pst_assert(plan->tensors[i].handle.kind == PST_GPU_CUDA);
        pst_assert(plan->tensors[i].ordinal == plan->tensors[0].ordinal);
    }
    snprintf(fault, PST_FAULT_BYTES, "there is no NCCL");
    return -ENOENT;
}

void __wrap_pst_acceptor_keep(struct pst_acceptor *acceptor, int fd);

void __wrap_pst_acceptor_keep(struct pst_acceptor *acceptor, int fd)
{
    pst_assert(!acceptor && fd == gone_fd);
}

static int make_memory(int seals)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    pst_assert(fd >= 0 && ftruncate(fd, 4096) == 0 && (!seals || fcntl(fd, F_ADD_SEALS, seals) == 0));
    return fd;
}

static void make_descriptors(void)
{
    int ends[2];

    if (gone_fd >= 0)
        return;
    came = (struct pod_fds){.count = 3, .fds = {make_memory(F_SEAL_SHRINK), make_memory(0), 0}};
    pst_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    close(ends[1]);
    gone_fd = ends[0];
}

static void pod_begin(struct pst_pod *pod)
{
    static const struct pst_pod_settings settings = {.rsync_port = 873};

    *pod = (struct pst_pod){.settings = &settings, .rsyncd_folder = "/tmp/fuzz_agent_frame"};
    pst_list_init(&pod->offers);
    pst_list_init(&pod->finished);
    pthread_mutex_init(&pod->offers_lock, NULL);
    pthread_mutex_init(&pod->finishing_lock, NULL);
    pthread_mutex_init(&pod->finished_lock, NULL);
    pthread_cond_init(&pod->finished_changed, NULL);
    pst_assert(tensors_open(pod) == 0 && casts_open(pod) == 0 && receptions_open(pod) == 0);
    pst_assert(rounds_open(pod) == 0);
}

static void no_log(void *ctx, const char *line)
{
    (void)ctx;
    pst_assert(line);
}

static void check_answer(char *text)
{
    struct pst_json *answer = NULL;
    const char *fault = NULL, *status;

    pst_assert(text);
    pst_assert(pst_json_parse(pst_bytes_of(text), &answer, &fault) == 0);
    status = pst_json_text(pst_json_get(answer, "status"));
    pst_assert(status);
    if (strcmp(status, "ok") != 0)
        pst_assert(strcmp(status, "error") == 0 && pst_json_text(pst_json_get(answer, "error")));
    pst_json_free(answer);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    struct pst_pod pod;

    make_descriptors();
    pod_begin(&pod);
    pod.log = no_log;
    pod.token_bytes = (uint32_t)snprintf(pod.token, sizeof(pod.token), "t") * fuzz_below(&in, 2);
    while (in.left > 0) {
        const struct pod_caller caller = {.fd = gone_fd, .local = fuzz_below(&in, 2), .pid = getpid()};
        const uint8_t *end = memchr(in.at, '\n', in.left);
        struct pod_fds go = {.count = 0};
        size_t taken;
        uint8_t *frame = fuzz_take(&in, end ? (size_t)(end - in.at) : in.left, &taken);

        if (end)
            fuzz_number(&in, 1);
        check_answer(frames_answer(&pod, &caller, (struct pst_bytes){frame, taken}, &came, &go));
        pst_assert(go.count <= 1); /* memory that is not sealed is not shared */
        fds_close(&go);
        pst_assert(pod.offer_count == (pod.rsyncd ? rsyncd.modules : 0));
        pst_assert(pod.finished_count <= pod.offer_count);
        free(frame);
    }
    offers_sweep(&pod);
    finished_sweep(&pod);
    tensors_sweep(&pod);
    casts_sweep(&pod);
    rounds_sweep(&pod);
    rounds_close(&pod);
    receptions_close(&pod);
    casts_close(&pod);
    tensors_close(&pod);
    finished_close(&pod);
    offers_close(&pod);
    return 0;
}
