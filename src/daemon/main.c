/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: penstockd: its process, its log, its signals. */
#include "daemon/daemon.h"

#include "base/error.h"

#include <penstock/penstock.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>

enum { EXIT_USAGE = 2, LINE_BYTES = 4096 };

void daemon_log(void *ctx, const char *line)
{
    struct timespec now;
    struct tm tm;
    char stamp[32], text[LINE_BYTES];

    (void)ctx;
    snprintf(text, sizeof(text), "%s", line);
    pst_printable(text);
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
    fprintf(stderr, "%s.%03ldZ penstockd: %s\n", stamp, now.tv_nsec / 1000000, text);
}

void daemon_log_settings(const struct settings *settings)
{
    char line[LINE_BYTES] = "settings: ";

    daemon_settings_print(settings, line + strlen(line), sizeof(line) - strlen(line));
    daemon_log(NULL, line);
}

static int usage(char *fault)
{
    pst_printable(fault);
    fprintf(stderr, "penstockd: %s (see penstockd --help)\n", fault);
    return EXIT_USAGE;
}

/* Every client costs descriptors, and running out of them is fatal to the transport. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Inherited settings of the transport may undo what the operator asked for here. */
static void report_inherited(void)
{
    static const char *const names[] = {"UCX_TLS", "UCX_NET_DEVICES", "UCX_TCP_PORT_RANGE",
                                        "UCX_MM_ERROR_HANDLING"};
    char line[256];

    for (size_t i = 0; i < pst_count_of(names); i++) {
        if (getenv(names[i])) {
            snprintf(line, sizeof(line), "inherited from the environment: %s=%.150s", names[i],
                     getenv(names[i]));
            daemon_log(NULL, line);
        }
    }
}

/* Memory that was there when the node began is gone. Nothing can go on without it; this says why, and the
 * signal's own way to end a process, with a core file, is next. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static const char failed[] = "penstockd: bus error: the machine's memory has failed\n";
    static const char gone[] =
        "penstockd: bus error: memory of a mapped file is gone: was a file of --folder "
        "cut off, or is its file system full?\n";
    bool machine = info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO;
    ssize_t n =
        write(STDERR_FILENO, machine ? failed : gone, machine ? sizeof(failed) - 1 : sizeof(gone) - 1);

    (void)n;
    (void)number;
    (void)context;
}

static void name_bus_errors(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND};

    sigaction(SIGBUS, &action, NULL);
}

/* What is served: one of these. */
struct served {
    struct daemon_node *node;
    struct pst_data_store *store;
    struct pst_pod *pod;
};

static int open_role(struct settings *settings, struct served *served, char fault[PST_FAULT_BYTES])
{
    if (!daemon_role_is(settings, "store") && !daemon_role_is(settings, "agent"))
        return daemon_node_open(settings, &served->node, fault);
    daemon_log_settings(settings);
    if (daemon_role_is(settings, "agent"))
        return pst_pod_open(&settings->pod, daemon_log, NULL, &served->pod, fault);
    return pst_data_store_open(&settings->data_store, daemon_log, NULL, &served->store, fault);
}

static void close_role(struct served *served)
{
    daemon_node_close(served->node);
    pst_data_store_close(served->store);
    pst_pod_close(served->pod);
}

static void report_keys(const struct served *served)
{
    char line[64];

    if (!served->node)
        return;
    snprintf(line, sizeof(line), "%llu keys stored", (unsigned long long)daemon_node_keys(served->node));
    daemon_log(NULL, line);
}

/* The next of @signals; meanwhile says once that the node is ready, which in a pool takes its master. */
static int next_signal(int signal_fd, int *ready_fd)
{
    struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN}, {.fd = *ready_fd, .events = POLLIN}};
    struct signalfd_siginfo info;

    while (poll(fds, pst_count_of(fds), -1) < 0 || !fds[0].revents) {
        if (!fds[1].revents)
            continue;
        daemon_log(NULL, "ready");
        *ready_fd = fds[1].fd = -1;
        fds[1].revents = 0;
    }
    return read(signal_fd, &info, sizeof(info)) == sizeof(info) ? (int)info.ssi_signo : SIGUSR1;
}

/* Return: false: the signal ends the daemon. */
static bool heed(const struct served *served, int signal)
{
    if (signal == SIGUSR1)
        report_keys(served);
    else if (signal == SIGHUP && served->node)
        daemon_node_reload(served->node);
    return signal == SIGUSR1 || signal == SIGHUP;
}

static int serve(const struct served *served, const sigset_t *signals)
{
    int ready_fd = served->node ? daemon_node_ready_fd(served->node) : -1;
    int signal_fd pst_cleanup_close = signalfd(-1, signals, SFD_CLOEXEC);

    if (signal_fd < 0)
        return -errno;
    if (served->node && ready_fd < 0)
        daemon_log(NULL, "ready");
    while (heed(served, next_signal(signal_fd, &ready_fd)))
        ;
    return 0;
}

static int run(struct settings *settings)
{
    struct served served = {0};
    char fault[PST_FAULT_BYTES];
    sigset_t signals;
    int r;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    if (pst_node_rereads(&settings->serve.node)) /* else it ends the daemon, as it always has */
        sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    name_bus_errors();
    raise_descriptor_limit();
    report_inherited();
    settings->spans.log = daemon_log;
    r = pst_spans_open(&settings->spans, fault);
    if (r == 0)
        r = open_role(settings, &served, fault);
    if (r < 0) {
        daemon_log(NULL, fault);
        close_role(&served);
        pst_spans_close();
        return r == -EINVAL ? EXIT_USAGE : EXIT_FAILURE;
    }
    r = serve(&served, &signals);
    daemon_log(NULL, r < 0 ? "no descriptor is left to wait for signals" : "stopping");
    close_role(&served);
    pst_spans_close();
    daemon_log(NULL, "stopped");
    return r < 0 ? EXIT_FAILURE : 0;
}

int main(int argc, char **argv)
{
    struct settings settings = {0};
    char fault[PST_FAULT_BYTES];
    int r;

    if (argc == 2 && strcmp(argv[1], PST_POD_MOVER) == 0)
        return pst_pod_move();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            daemon_help();
            return 0;
        }
        if (strcmp(argv[i], "--metrics") == 0) {
            pst_monitor_list();
            return 0;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("penstockd %d.%d.%d\n", PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR,
                   PENSTOCK_VERSION_PATCH);
            return 0;
        }
    }
    r = daemon_settings_read(argv + 1, &settings, fault);
    r = r < 0 ? usage(fault) : run(&settings);
    daemon_settings_free(&settings);
    return r;
}
