/* SPDX-License-Identifier: Apache-2.0 */
/* mover.c: the agent's side: a child process and a socket to it. */
#include "agent/round/mover.h"

#include "agent/pod.h"

#include "agent/round/lines.h"
#include "base/clock.h"
#include "base/hex.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
    LINES_MAX = 64, /* that are heard at a time */
    ENDS_MS = 1000, /* to end, for one that has closed its side */
    ENDS_LOOK_MS = 20,
};

struct mover {
    pid_t pid; /* 0: none, or it was waited for */
    int fd;
    bool is_ready, goes, is_done; /* in this order */
    uint64_t moved_ms;
    uint8_t id[PST_NCCL_ID_BYTES];
    struct round_lines lines;
};

static int mover_fail(int error, const char *why, char fault[PST_FAULT_BYTES])
{
    pst_assert(error < 0);
    snprintf(fault, PST_FAULT_BYTES, "%.200s", why);
    return error;
}

/* ---- the plan ---- */

static struct pst_json *print_tensor(const struct pst_gpu_place *place)
{
    struct pst_json *object = pst_json_new_object(), *shape = pst_json_new_array();
    char handle[PST_GPU_HANDLE_TEXT_MAX];
    int r = object && shape ? 0 : -ENOMEM;

    pst_assert(place->handle.kind == PST_GPU_CUDA);
    pst_gpu_handle_print(&place->handle, &place->layout, handle);
    for (uint32_t i = 0; r == 0 && i < place->layout.rank; i++)
        r = pst_json_add_integer(shape, NULL, (int64_t)place->layout.shape[i]);
    if (r < 0 || pst_json_add_text(object, "ipc_handle", handle) < 0 ||
        pst_json_add_text(object, "dtype", place->layout.dtype) < 0) {
        pst_json_free(shape);
        return pst_json_free(object);
    }
    return pst_json_add(object, "shape", shape) < 0 ? pst_json_free(object) : object;
}

static struct pst_json *print_plan(const struct mover_plan *plan)
{
    struct pst_json *line = pst_json_new_object(), *tensors = pst_json_new_array();
    int r = line && tensors ? 0 : -ENOMEM;

    pst_assert(plan->count > 0);
    pst_assert(plan->rank < plan->world_size);
    for (uint32_t i = 0; r == 0 && i < plan->count; i++) {
        pst_assert(plan->tensors[i].ordinal == plan->tensors[0].ordinal);
        r = pst_json_add(tensors, NULL, print_tensor(&plan->tensors[i]));
    }
    if (r < 0 || pst_json_add_integer(line, "rank", plan->rank) < 0 ||
        pst_json_add_integer(line, "world_size", plan->world_size) < 0 ||
        pst_json_add_integer(line, "device", plan->tensors[0].ordinal) < 0) {
        pst_json_free(tensors);
        return pst_json_free(line);
    }
    return pst_json_add(line, "tensors", tensors) < 0 ? pst_json_free(line) : line;
}

/* ---- the process ---- */

/* Between fork() and here other threads may have held any lock: system calls alone. What NCCL prints goes
 * where the agent's log goes. */
static _Noreturn void become_mover(int fd, pid_t parent)
{
    char program[] = "penstockd", argument[] = PST_POD_MOVER;
    char *argv[] = {program, argument, NULL};
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) {
        dup2(fd, STDIN_FILENO);
        dup2(STDERR_FILENO, STDOUT_FILENO);
        syscall(SYS_close_range, 3u, ~0u, 0u);
        execv("/proc/self/exe", argv);
    }
    _exit(EXIT_FAILURE);
}

static int mover_start(struct mover *mover)
{
    pid_t parent = getpid();
    int ends[2];

    pst_assert(mover->fd < 0 && mover->pid == 0);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    mover->pid = fork();
    if (mover->pid == 0)
        become_mover(ends[1], parent);
    close(ends[1]);
    mover->fd = ends[0];
    if (mover->pid < 0) {
        mover->pid = 0;
        return -errno;
    }
    return fcntl(mover->fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

int mover_open(const struct mover_plan *plan, struct mover **out, char fault[PST_FAULT_BYTES])
{
    struct mover *mover = calloc(1, sizeof(*mover));
    struct pst_json *line = mover ? print_plan(plan) : NULL;
    int r = line ? 0 : -ENOMEM;

    if (mover)
        *mover = (struct mover){.fd = -1, .moved_ms = pst_now_ms()};
    if (r == 0)
        r = mover_start(mover);
    if (r == 0)
        r = round_say(mover->fd, line);
    pst_json_free(line);
    if (r < 0) {
        mover_close(mover);
        return mover_fail(r, strerror(-r), fault);
    }
    *out = mover;
    return 0;
}

/* ---- what it says ---- */

/* Whether it has ended; it still has its number. */
static bool has_ended(const struct mover *mover)
{
    siginfo_t info = {.si_pid = 0};

    pst_assert(mover->pid > 1);
    return waitid(P_PID, (id_t)mover->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

/* With all that it has started. Return: as waitpid() says how it ended. */
static int mover_kill(struct mover *mover)
{
    int status = 0;

    pst_assert(mover->pid > 1);
    kill(-mover->pid, SIGKILL);
    kill(mover->pid, SIGKILL); /* it may not have got as far as its own group */
    pst_assert(waitpid(mover->pid, &status, 0) == mover->pid);
    mover->pid = 0;
    return status;
}

/* It has closed its side, and so ends, or hangs on the way. */
static int fail_ended(struct mover *mover, char fault[PST_FAULT_BYTES])
{
    int status;

    pst_assert(mover->pid > 1);
    for (int waited_ms = 0; !has_ended(mover) && waited_ms < ENDS_MS; waited_ms += ENDS_LOOK_MS)
        poll(NULL, 0, ENDS_LOOK_MS);
    status = mover_kill(mover);
    if (WIFSIGNALED(status))
        snprintf(fault, PST_FAULT_BYTES, "the process that moves tensors was ended by signal %d",
                 WTERMSIG(status));
    else
        snprintf(fault, PST_FAULT_BYTES, "the process that moves tensors has ended with %d",
                 WEXITSTATUS(status));
    return -ECONNRESET;
}

static int hear_ready(struct mover *mover, const struct pst_json *line, char fault[PST_FAULT_BYTES])
{
    const char *id = pst_json_text(pst_json_get(line, "id"));

    pst_assert(!mover->goes || mover->is_ready);
    if (mover->is_ready ||
        (id && (strlen(id) != 2 * sizeof(mover->id) || !pst_hex_parse(id, mover->id, sizeof(mover->id)))))
        return mover_fail(-EPROTO, "the process that moves tensors says what it should not", fault);
    mover->is_ready = true;
    return 0;
}

static int hear_line(struct mover *mover, const struct pst_json *line, char fault[PST_FAULT_BYTES])
{
    const char *error = pst_json_text(pst_json_get(line, "error"));

    pst_assert(!mover->is_done || mover->goes);
    if (error)
        return mover_fail(-EIO, *error ? error : "it does not say what is wrong", fault);
    mover->moved_ms = pst_now_ms();
    if (pst_json_get(line, "ready"))
        return hear_ready(mover, line, fault);
    if (pst_json_get(line, "done") && !mover->goes)
        return mover_fail(-EPROTO, "the process that moves tensors says what it should not", fault);
    mover->is_done = mover->is_done || pst_json_get(line, "done");
    return 0;
}

int mover_hear(struct mover *mover, char fault[PST_FAULT_BYTES])
{
    struct pst_json *line = NULL;
    uint32_t count = 0;
    int r;

    pst_assert(mover->fd >= 0);
    while ((r = round_lines_hear(&mover->lines, mover->fd, &line)) > 0) {
        r = hear_line(mover, line, fault);
        pst_json_free(line);
        if (r < 0 || ++count == LINES_MAX)
            return r;
    }
    if (r == 0 || mover->is_done)
        return 0;
    return r == -ECONNRESET ? fail_ended(mover, fault) : mover_fail(r, strerror(-r), fault);
}

int mover_fd(const struct mover *mover)
{
    pst_assert(mover->fd >= 0);
    return mover->fd;
}

bool mover_is_ready(const struct mover *mover)
{
    return mover->is_ready;
}

bool mover_is_done(const struct mover *mover)
{
    pst_assert(!mover->is_done || mover->goes);
    return mover->is_done;
}

uint64_t mover_moved_ms(const struct mover *mover)
{
    return mover->moved_ms;
}

const uint8_t *mover_id(const struct mover *mover)
{
    pst_assert(mover->is_ready);
    return mover->id;
}

int mover_go(struct mover *mover, const uint8_t id[PST_NCCL_ID_BYTES], char fault[PST_FAULT_BYTES])
{
    char text[2 * PST_NCCL_ID_BYTES + 1];
    int r;

    pst_assert(mover->is_ready && !mover->goes);
    mover->goes = true;
    pst_hex_print(id, PST_NCCL_ID_BYTES, text);
    mover->moved_ms = pst_now_ms();
    r = round_say_text(mover->fd, "id", text);
    return r < 0 ? mover_fail(r, strerror(-r), fault) : 0;
}

struct mover *mover_close(struct mover *mover)
{
    if (!mover)
        return NULL;
    if (mover->pid > 0)
        mover_kill(mover);
    pst_close_fd(&mover->fd);
    free(mover);
    return NULL;
}
