/* SPDX-License-Identifier: Apache-2.0 */
/* rsyncd.c: the daemon as a process: started, waited for, started again, ended with all its connections. */
#include "files/rsync/rsyncd_priv.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/ms.h"
#include "base/own.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
    READY_MS_MAX = 10000,
    PORT_MS_MAX = 5000,
    POLL_MS = 10,
    AGAIN_MS_MIN = 100,
    AGAIN_MS_MAX = 5000,
    STEADY_MS = 10000, /* a daemon that lived so long is started again at once */
    END_MS_MAX = 5000,
    CONNECTIONS_MS_MAX = 1000, /* then they wait for their clients alone */
    OUTPUT_LOOK_MS = 5000,
    OUTPUT_BYTES_MAX = 1 << 20,
    OUTPUT_BYTES_KEPT = 64 << 10, /* of more than that */
};

/* ---- the port ---- */

/* Binds @port and lets it go: rsync is told a number. Return: the port, or -errno. */
static int probe_port(const char *host, uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t bytes = sizeof(at);
    pst_cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;

    if (fd < 0)
        return -errno;
    if (host && inet_pton(AF_INET, host, &at.sin_addr) != 1)
        return -EINVAL;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &bytes) < 0)
        return -errno;
    return ntohs(at.sin_port);
}

/* The daemon of a process that was killed hears of it, and may have the port until then. Return: the port, or
 * -errno. */
static int await_port(const struct pst_rsyncd *d, const struct pst_rsyncd_settings *settings)
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), PORT_MS_MAX);
    int r = probe_port(settings->host, settings->port);

    if (r == -EADDRINUSE && d->log)
        d->log(d->ctx, "rsync daemon: another process has its port still");
    while (r == -EADDRINUSE && pst_now_ns() < until_ns) {
        usleep(POLL_MS * 1000);
        r = probe_port(settings->host, settings->port);
    }
    return r;
}

static bool listens(const struct pst_rsyncd *d)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(d->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    pst_cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (d->host[0])
        inet_pton(AF_INET, d->host, &at.sin_addr);
    return fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0;
}

/* ---- the process ---- */

/* Between fork() and here other threads may have held any lock: system calls alone. */
static _Noreturn void become_rsync(char *const *argv, int log_fd, pid_t parent)
{
    /* No client makes a device, gives a program powers, or sets what is the host's own (trusted.*). */
    static const int denied[] = {CAP_MKNOD, CAP_SETFCAP, CAP_SYS_ADMIN};
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* follows the watching thread, which lives as long as the process */
    for (size_t i = 0; i < pst_count_of(denied); i++)
        prctl(PR_CAPBSET_DROP, denied[i], 0, 0, 0);
    if (getppid() == parent) {
        dup2(log_fd, STDOUT_FILENO);
        dup2(log_fd, STDERR_FILENO);
        close(STDIN_FILENO);
        open("/dev/null", O_RDONLY);
        syscall(SYS_close_range, 3u, ~0u, 0u);
        execvp(argv[0], argv);
    }
    /* a folder of the PATH that may not be searched hides that there is none in the others */
    _exit(errno == ENOENT || errno == EACCES || errno == ENOTDIR ? EXIT_NO_RSYNC : EXIT_FAILED);
}

static int start(struct pst_rsyncd *d)
{
    char config[PATH_MAX + 32], port[32], host[96];
    char *argv[] = {"rsync", "--daemon", "--no-detach", config, port, d->host[0] ? host : NULL, NULL};
    pst_cleanup_close int log_fd =
        openat(d->folder_fd, "output", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    pid_t parent = getpid(), pid;

    pst_assert(d->port > 0);
    pst_assert(!atomic_load(&d->pid));
    if (log_fd < 0)
        return -errno;
    snprintf(config, sizeof(config), "--config=%s/rsyncd.conf", d->folder);
    snprintf(port, sizeof(port), "--port=%u", d->port);
    snprintf(host, sizeof(host), "--address=%s", d->host);
    pid = fork();
    if (pid == 0)
        become_rsync(argv, log_fd, parent);
    if (pid < 0)
        return -errno;
    atomic_store(&d->pid, pid);
    return 0;
}

/* The last line that rsync wrote, for people. */
static void last_line(struct pst_rsyncd *d, char *line, size_t cap)
{
    pst_cleanup_close int fd = openat(d->folder_fd, "output", O_RDONLY | O_CLOEXEC);
    off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n = fd < 0 ? 0 : pread(fd, line, cap - 1, pst_max(bytes - (off_t)cap + 1, 0));
    char *end;

    pst_assert(cap > 0);
    line[n > 0 ? n : 0] = 0;
    while ((end = strrchr(line, '\n')) && !end[1])
        *end = 0;
    if (end)
        memmove(line, end + 1, strlen(end));
    pst_printable(line);
}

/* The daemon writes some lines for each connection. */
static void trim_output(const struct pst_rsyncd *d)
{
    pst_cleanup_close int fd = openat(d->folder_fd, "output", O_RDWR | O_APPEND | O_CLOEXEC);
    off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    char *kept = bytes > OUTPUT_BYTES_MAX ? malloc(OUTPUT_BYTES_KEPT) : NULL;

    if (kept && pread(fd, kept, OUTPUT_BYTES_KEPT, bytes - OUTPUT_BYTES_KEPT) == OUTPUT_BYTES_KEPT &&
        ftruncate(fd, 0) == 0)
        (void)!write(fd, kept, OUTPUT_BYTES_KEPT);
    free(kept);
}

/* Return: the exit code of the process, of one that a signal ended 128 and the signal, as shells say it; -1
 * the daemon is to end before that. */
static int await_end(struct pst_rsyncd *d)
{
    pst_cleanup_close int pid_fd = (int)syscall(SYS_pidfd_open, d->pid, 0u);
    struct pollfd either[] = {{.fd = d->stop_fd, .events = POLLIN}, {.fd = pid_fd, .events = POLLIN}};
    int status = 0;

    pst_assert(d->pid > 1);
    while (waitpid(d->pid, &status, WNOHANG) == 0) {
        if (poll(either, pst_count_of(either), pid_fd < 0 ? AGAIN_MS_MIN : OUTPUT_LOOK_MS) > 0 &&
            either[0].revents)
            return -1;
        trim_output(d);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Of a daemon that has ended: each connection is a process of its group. One that is asked to end removes
 * what it has of a file; one that is killed leaves it in the module. */
static void end_connections(struct pst_rsyncd *d)
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), CONNECTIONS_MS_MAX);
    pid_t pid = atomic_exchange(&d->pid, 0);

    if (pid <= 0 || kill(-pid, SIGTERM) < 0)
        return;
    while (kill(-pid, 0) == 0 && pst_now_ns() < until_ns)
        usleep(POLL_MS * 1000);
    kill(-pid, SIGKILL);
}

static void end_process(struct pst_rsyncd *d)
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), END_MS_MAX);

    pst_assert(d->pid > 1); /* others are not its group */
    kill(-d->pid, SIGTERM);
    while (waitpid(d->pid, NULL, WNOHANG) == 0) {
        if (pst_now_ns() > until_ns)
            kill(-d->pid, SIGKILL);
        usleep(POLL_MS * 1000);
    }
    end_connections(d);
}

static void tell_of_end(struct pst_rsyncd *d, int code)
{
    char said[256], line[512];

    if (!d->log)
        return;
    last_line(d, said, sizeof(said));
    snprintf(line, sizeof(line), "rsync daemon: ended with %d, is started again: %.200s", code, said);
    d->log(d->ctx, line);
}

static void *watch(void *arg)
{
    struct pst_rsyncd *d = arg;
    uint32_t again_ms = AGAIN_MS_MIN;
    struct pollfd stop = {.fd = d->stop_fd, .events = POLLIN};

    for (;;) {
        uint64_t begun_ns = pst_now_ns();
        int code = start(d) < 0 ? EXIT_FAILED : await_end(d);

        if (code < 0) {
            end_process(d);
            return NULL;
        }
        end_connections(d);
        atomic_store(&d->ended_with, code);
        tell_of_end(d, code);
        if (pst_now_ns() - begun_ns > pst_ns_of_ms(STEADY_MS))
            again_ms = AGAIN_MS_MIN;
        if (poll(&stop, 1, (int)again_ms) > 0)
            return NULL;
        again_ms = (uint32_t)pst_min(2ull * again_ms, AGAIN_MS_MAX);
        atomic_fetch_add(&d->restarts, 1);
    }
}

/* ---- beginning and end ---- */

static int await_ready(struct pst_rsyncd *d, char fault[PST_FAULT_BYTES])
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), READY_MS_MAX);

    pst_assert(d->watched);
    while (pst_now_ns() < until_ns) {
        if (atomic_load(&d->ended_with) == EXIT_NO_RSYNC) {
            snprintf(fault, PST_FAULT_BYTES, "there is no program 'rsync' on the PATH that may be run");
            return -ENOENT;
        }
        if (atomic_load(&d->pid) && listens(d))
            return 0;
        usleep(POLL_MS * 1000);
    }
    last_line(d, fault, PST_FAULT_BYTES);
    return -ETIMEDOUT;
}

static int open_folder(struct pst_rsyncd *d, const char *path, char fault[PST_FAULT_BYTES])
{
    int r;

    pst_assert(d->folder_fd < 0);
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        r = -errno;
        snprintf(fault, PST_FAULT_BYTES, "%.150s: %s", path, strerror(-r));
        return r;
    }
    d->folder_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    r = d->folder_fd < 0 ? pst_fail(-errno, "%s", strerror(errno))
                         : pst_own_check(d->folder_fd, S_IFDIR, PST_OWN_USES);
    if (r == 0 && !realpath(path, d->folder))
        r = pst_fail(-errno, "%s", strerror(errno));
    if (r == 0 && flock(d->folder_fd, LOCK_EX | LOCK_NB) < 0)
        r = errno == EWOULDBLOCK ? pst_fail(-EBUSY, "another rsync daemon's settings lie there")
                                 : pst_fail(-errno, "%s", strerror(errno));
    if (r == 0 && strpbrk(d->folder, "%\\\n"))
        r = pst_fail(-EINVAL, "rsync cannot read settings below a name with '%%' or '\\'");
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%.150s: %.80s", path, pst_error_text());
    return r;
}

/* rsync's file of passwords has a line "user:password" for each, and '#' begins a comment. */
static int take_token(struct pst_rsyncd *d, struct pst_bytes token, char fault[PST_FAULT_BYTES])
{
    const char *text = token.data;

    pst_assert(!d->token[0]);
    if (token.len > PST_RSYNCD_TOKEN_BYTES_MAX) {
        snprintf(fault, PST_FAULT_BYTES, "rsync's token has over %d bytes", PST_RSYNCD_TOKEN_BYTES_MAX);
        return -EINVAL;
    }
    for (size_t i = 0; i < token.len; i++) {
        if (text[i] <= ' ' || text[i] > '~') {
            snprintf(fault, PST_FAULT_BYTES, "rsync's token must be printable ASCII without blanks");
            return -EINVAL;
        }
    }
    if (token.len)
        memcpy(d->token, text, token.len);
    return 0;
}

static int begin(struct pst_rsyncd *d, const struct pst_rsyncd_settings *settings,
                 char fault[PST_FAULT_BYTES])
{
    int r = take_token(d, settings->token, fault);

    pst_assert(!d->watched);
    pst_assert(d->stop_fd >= 0);
    if (r == 0)
        r = open_folder(d, settings->folder, fault);
    if (r < 0)
        return r;
    r = await_port(d, settings);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "rsync's port %s:%u: %s", settings->host ? settings->host : "",
                 settings->port, strerror(-r));
        return r;
    }
    d->port = (uint16_t)r;
    r = rsyncd_write_settings(d);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "%.150s: %s", d->folder, strerror(-r));
        return r;
    }
    r = -pthread_create(&d->thread, NULL, watch, d);
    d->watched = r == 0;
    return r < 0 ? r : await_ready(d, fault);
}

int pst_rsyncd_open(const struct pst_rsyncd_settings *settings, struct pst_rsyncd **out,
                    char fault[PST_FAULT_BYTES])
{
    struct pst_rsyncd *d = calloc(1, sizeof(*d));
    int r = -ENOMEM;

    pst_assert(settings->folder);
    pst_assert(out);
    fault[0] = 0;
    *out = NULL;
    if (!d)
        return -ENOMEM;
    d->folder_fd = -1;
    d->ended_with = -1;
    d->log = settings->log;
    d->ctx = settings->ctx;
    d->connections_max = settings->connections_max;
    snprintf(d->host, sizeof(d->host), "%s", settings->host ? settings->host : "");
    pthread_mutex_init(&d->lock, NULL);
    d->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->stop_fd >= 0)
        r = begin(d, settings, fault);
    if (r < 0) {
        pst_rsyncd_close(d);
        return r;
    }
    *out = d;
    return 0;
}

uint16_t pst_rsyncd_port(const struct pst_rsyncd *d)
{
    pst_assert(d->port > 0);
    return d->port;
}

uint32_t pst_rsyncd_restarts(const struct pst_rsyncd *d)
{
    return atomic_load(&d->restarts);
}

struct pst_rsyncd *pst_rsyncd_close(struct pst_rsyncd *d)
{
    if (!d)
        return NULL;
    if (d->watched) {
        pst_event_set(d->stop_fd);
        pthread_join(d->thread, NULL);
    }
    pst_assert(!d->pid);
    rsyncd_remove_settings(d);
    free(d->modules);
    pst_close_fd(&d->folder_fd);
    pst_close_fd(&d->stop_fd);
    pthread_mutex_destroy(&d->lock);
    free(d);
    return NULL;
}
