/* SPDX-License-Identifier: Apache-2.0 */
/* host.c: see host.h. */
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGS_MAX = 32, STOP_MS = 60000 };

void host_ssd(const struct host *h, char path[256])
{
    snprintf(path, 256, "%s/ssd", h->folder);
}

static void exec_daemon(const struct host *h)
{
    char shards[12], ssd[256], socket[256], log[256];
    const char *argv[ARGS_MAX] = {h->program,      "--listen", "127.0.0.1:0", "--unix",      socket,
                                  "--dram",        "4M",       "--page-size", "64K",         "--shards",
                                  shards,          "--ssd",    ssd,           "--ssd-bytes", "48M",
                                  "--ssd-segment", "1M",       "--class",     "c/=cache"};
    int count = 0, fd;

    while (argv[count])
        count++;
    if (h->driver) {
        argv[count++] = "--ssd-driver";
        argv[count++] = h->driver;
    }
    snprintf(shards, sizeof(shards), "%u", h->shards);
    host_ssd(h, ssd);
    snprintf(socket, sizeof(socket), "%s/socket", h->folder);
    snprintf(log, sizeof(log), "%s/log", h->folder);
    fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0) {
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
    }
    if (h->faults)
        setenv("PENSTOCK_FAULTS", h->faults, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(h->program, (char *const *)(uintptr_t)argv);
    dprintf(STDERR_FILENO, "%s: %s\n", h->program, strerror(errno));
    _exit(127);
}

void host_start(struct host *h)
{
    h->pid = fork();
    if (h->pid < 0)
        abort();
    if (h->pid == 0)
        exec_daemon(h);
}

bool host_lives(struct host *h, int *status)
{
    if (waitpid(h->pid, status, WNOHANG) == 0)
        return true;
    h->pid = 0;
    return false;
}

int host_kill(struct host *h)
{
    int status = 0;

    kill(h->pid, SIGKILL);
    waitpid(h->pid, &status, 0);
    h->pid = 0;
    return status;
}

int host_stop(struct host *h)
{
    int status;

    kill(h->pid, SIGTERM);
    for (int ms = 0; ms < STOP_MS; ms += 2) {
        if (!host_lives(h, &status))
            return status;
        usleep(2000);
    }
    host_kill(h);
    return -1;
}

void host_said(const struct host *h, char *text, uint32_t room)
{
    char path[256];
    ssize_t n;
    off_t size;
    int fd;

    snprintf(path, sizeof(path), "%s/log", h->folder);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    n = fd < 0 ? 0 : pread(fd, text, room - 1, size > room - 1 ? size - (room - 1) : 0);
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}
