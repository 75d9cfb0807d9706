/* SPDX-License-Identifier: Apache-2.0 */
/* daemon.c: starts penstockd, reads the port from its log, stops it. */
#include "check.h"
#include "daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    ARGS_MAX = 32,
    START_MS = 20000,
    STOP_SECONDS = 20,
};

static long now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int wait_for_child(pid_t pid, int seconds)
{
    long end_ms = now_ms() + seconds * 1000L;
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_ms() > end_ms) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            fail_msg("process %d has not ended after %d s", (int)pid, seconds);
        }
        usleep(2000);
    }
    return status;
}

static void run_daemon(const struct daemon *d, const char *const *args, int log_fd)
{
    const char *argv[ARGS_MAX] = {"penstockd", "--listen", "127.0.0.1:0", "--unix", d->socket_path};
    const char *build = getenv("PENSTOCK_BUILD");
    char program[512];
    int count = 5;

    while (*args && count < ARGS_MAX - 1)
        argv[count++] = *args++;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log_fd, STDERR_FILENO);
    snprintf(program, sizeof(program), "%s/penstockd", build ? build : ".");
    execv(program, (char *const *)(uintptr_t)argv);
    dprintf(STDERR_FILENO, "%s: %s\n", program, strerror(errno));
    _exit(127);
}

/* Reads the log until both sockets listen, and takes the port from it. */
static void read_port(struct daemon *d)
{
    static const char mark[] = "listening on 127.0.0.1:";
    char log[8192] = "";
    size_t len = 0;
    long end_ms = now_ms() + START_MS * (long)slowness();
    int port;

    while (!strstr(log, mark) || !strstr(log, "listening on unix://")) {
        struct pollfd fd = {.fd = d->log_fd, .events = POLLIN};
        ssize_t n = 0;

        if (poll(&fd, 1, 100) > 0)
            n = read(d->log_fd, log + len, sizeof(log) - 1 - len);
        if (fd.revents && n <= 0)
            fail_msg("penstockd ended at its start: %s", log);
        len += (size_t)n;
        log[len] = '\0';
        if (now_ms() > end_ms)
            fail_msg("penstockd does not listen: %s", log);
    }
    port = atoi(strstr(log, mark) + strlen(mark));
    assert_in_range(port, 1, 65535);
    snprintf(d->url_tcp, sizeof(d->url_tcp), "node://127.0.0.1:%d", port);
}

void daemon_start(struct daemon *d, const char *const *args)
{
    int log[2];

    *d = (struct daemon){.folder = "/tmp/penstock-e2e-XXXXXX"};
    assert_non_null(mkdtemp(d->folder));
    snprintf(d->socket_path, sizeof(d->socket_path), "%s/socket", d->folder);
    snprintf(d->url_unix, sizeof(d->url_unix), "node+unix://%s", d->socket_path);
    assert_int_equal(pipe2(log, O_CLOEXEC), 0);
    d->pid = fork();
    assert_true(d->pid >= 0);
    if (d->pid == 0)
        run_daemon(d, args, log[1]);
    close(log[1]);
    d->log_fd = log[0];
    read_port(d);
    /* Nobody reads on: a full pipe would stop the daemon. */
    fcntl(d->log_fd, F_SETPIPE_SZ, 1 << 20);
}

void daemon_stop(struct daemon *d)
{
    int status;

    assert_int_equal(kill(d->pid, SIGTERM), 0);
    status = wait_for_child(d->pid, STOP_SECONDS);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(access(d->socket_path, F_OK), -1);
    assert_int_equal(rmdir(d->folder), 0);
    close(d->log_fd);
}

void daemon_kill(struct daemon *d)
{
    int status;

    assert_int_equal(kill(d->pid, SIGKILL), 0);
    status = wait_for_child(d->pid, STOP_SECONDS);
    assert_true(WIFSIGNALED(status));
    unlink(d->socket_path);
    assert_int_equal(rmdir(d->folder), 0);
    close(d->log_fd);
}
