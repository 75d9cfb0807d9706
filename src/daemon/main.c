/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: penstockd: settings from a file, the environment and the command line, one node with its door and
 * its part in a pool, signals. */
#include "base/error.h"
#include "base/options.h"
#include "base/paths.h"
#include "gateway/gateway.h"
#include "master/master.h"
#include "serve/serve.h"

#include <penstock/penstock.h>

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

enum { EXIT_USAGE = 2, LINE_BYTES = 4096 };

#define MASTER_DRAM "64M" /* unless the operator says: what its clients put is not for it to keep */

#define PST_ROLE_OPTIONS(X)                                                                                  \
    X(STRING, role, "", 0, 0, "ROLE", "'master': knows a pool's nodes and keys, and has few values itself")

struct pst_role_settings {
    PST_ROLE_OPTIONS(PST_OPTION_MEMBER)
};

#define FOLLOW_OPTIONS(X)                                                                                    \
    X(STRING, follow, "", 0, 0, "URL", "have what that store has, and what changes there")                   \
    X(STRING, follow_prefix, "", 0, 0, "PREFIX", "as far as keys begin with it")                             \
    X(STRING, follow_secret_file, "", 0, 0, "FILE", "its secret; the node's own if not set")

struct follow_settings {
    FOLLOW_OPTIONS(PST_OPTION_MEMBER)
};

/* What is served. */
struct settings {
    struct pst_serve_settings serve;
    struct pst_door_settings door;
    struct pst_role_settings role;
    struct pst_master_settings master;
    struct follow_settings follow;
};

#define ROW(PART, TYPE, name, ...)                                                                           \
    {#name, .type = PST_OPTION_##TYPE, offsetof(struct settings, PART.name), __VA_ARGS__},
#define NODE_ROW(...)      ROW(serve.node, __VA_ARGS__)
#define DOOR_ROW(...)      ROW(door, __VA_ARGS__)
#define MEMBER_ROW(...)    ROW(serve.member, __VA_ARGS__)
#define ROLE_ROW(...)      ROW(role, __VA_ARGS__)
#define MASTER_ROW(...)    ROW(master, __VA_ARGS__)
#define DIRECTORY_ROW(...) ROW(master.directory, __VA_ARGS__)
#define FOLLOW_ROW(...)    ROW(follow, __VA_ARGS__)
#define COPIES_ROW(...)    ROW(serve.copying, __VA_ARGS__)
static const struct pst_option rows[] = {
    PST_NODE_OPTIONS(NODE_ROW) PST_DOOR_OPTIONS(DOOR_ROW) PST_MEMBER_OPTIONS(MEMBER_ROW)
        PST_COPIES_OPTIONS(COPIES_ROW) PST_ROLE_OPTIONS(ROLE_ROW) PST_MASTER_OPTIONS(MASTER_ROW)
            PST_DIRECTORY_OPTIONS(DIRECTORY_ROW) FOLLOW_OPTIONS(FOLLOW_ROW)};
static const struct pst_options options = {rows, pst_count_of(rows)};

/* Of the daemon alone. */
#define DAEMON_OPTIONS(X) X(STRING, config, "", 0, 0, "FILE", "file with 'name = value' lines")

struct daemon_settings {
    DAEMON_OPTIONS(PST_OPTION_MEMBER)
};

#define PST_OPTION_SETTINGS struct daemon_settings
static const struct pst_options daemon_options = PST_OPTION_TABLE(DAEMON_OPTIONS);

static void log_line(void *ctx, const char *line)
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

static void help(void)
{
    printf(
        "usage: penstockd [OPTION...]\n\n"
        "Serves this machine's memory as a store of named values.\n"
        "Options may also be set as PENSTOCK_NAME in the environment and as 'name = value' lines of a file;\n"
        "the command line wins over the environment, the environment over the file; what may be repeated is\n"
        "taken from one of them alone. A variable in () is UMBP's for the same, and gives way to all of "
        "them.\n\n");
    pst_options_help(&options, stdout);
    pst_options_help(&daemon_options, stdout);
    printf("  --%-16s %-10s %s\n", "help", "", "this text");
    printf("  --%-16s %-10s %s\n", "version", "", "version");
    printf("\nSIGTERM and SIGINT end the node; SIGUSR1 logs how many keys it stores.\n");
}

static int usage(char *fault)
{
    pst_printable(fault);
    fprintf(stderr, "penstockd: %s (see penstockd --help)\n", fault);
    return EXIT_USAGE;
}

static int read_flags(char *const *argv, struct daemon_settings *own, struct settings *settings, char *fault)
{
    int used;

    pst_options_next_source(&options, settings);
    for (; *argv; argv += used) {
        used = pst_options_set_flag(&daemon_options, own, argv, fault);
        if (used == -ENOENT)
            used = pst_options_set_flag(&options, settings, argv, fault);
        if (used < 0)
            return used;
        if (used == 0) {
            snprintf(fault, PST_FAULT_BYTES, "'%.100s' is not an option", *argv);
            return -EINVAL;
        }
    }
    return 0;
}

/* Flags are read twice: they name the file, and win over it. */
static int read_config_name(char *const *argv, struct daemon_settings *own, char *fault)
{
    struct settings passed_over = {0};
    int r = pst_options_preset(&daemon_options, own, fault);

    if (r == 0)
        r = pst_options_environment(&daemon_options, own, fault);
    if (r == 0)
        r = read_flags(argv, own, &passed_over, fault);
    pst_options_free(&options, &passed_over);
    return r;
}

/* @dram: in place of the default, unless it is NULL. */
static int read_sources(char *const *argv, struct settings *settings, const char *dram, char *fault)
{
    struct daemon_settings own = {0};
    int r = read_config_name(argv, &own, fault);

    if (r == 0)
        r = pst_options_preset(&options, settings, fault);
    if (r == 0 && dram)
        r = pst_options_set(&options, settings, "dram", dram, fault);
    if (r == 0)
        r = pst_options_aliases(&options, settings, fault);
    if (r == 0 && own.config)
        r = pst_options_file(&options, settings, own.config, fault);
    if (r == 0)
        r = pst_options_environment(&options, settings, fault);
    if (r == 0)
        r = read_flags(argv, &own, settings, fault);
    pst_options_free(&daemon_options, &own);
    return r;
}

static int read_settings(char *const *argv, struct settings *settings, char *fault)
{
    int r = read_sources(argv, settings, NULL, fault);

    if (r == 0 && settings->role.role && strcmp(settings->role.role, "master") == 0) {
        pst_options_free(&options, settings);
        r = read_sources(argv, settings, MASTER_DRAM, fault);
    }
    if (r == 0 && !settings->serve.node.unix && !settings->serve.node.listen.count) {
        char path[108];

        r = pst_default_socket(true, path, sizeof(path));
        if (r < 0)
            snprintf(fault, PST_FAULT_BYTES, "%.180s, or say where with --unix or --listen",
                     pst_error_text());
        else
            r = pst_options_set(&options, settings, "unix", path, fault);
    }
    return r;
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
            log_line(NULL, line);
        }
    }
}

static void serve(struct pst_node *node, const sigset_t *signals)
{
    char line[64];

    for (;;) {
        int signal;

        if (sigwait(signals, &signal) != 0)
            continue;
        if (signal != SIGUSR1)
            break;
        snprintf(line, sizeof(line), "%llu keys stored", (unsigned long long)pst_node_keys(node));
        log_line(NULL, line);
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

/* What is served, and by what. */
struct served {
    struct pst_served *node;
    struct pst_door *door; /* NULL: not asked for, as the rest */
    struct pst_master *master;
    struct penstock *mirror; /* this node, for what it follows */
    struct penstock_follow *follow;
};

static int serve_door(struct served *served, const struct settings *settings, char *fault)
{
    char line[320];
    int r = pst_door_serve(served->door, pst_serve_unix_url(served->node), settings->serve.node.secret_file,
                           fault);

    if (r < 0)
        return r;
    snprintf(line, sizeof(line), "tsgrpc: listening on %s", pst_door_address(served->door));
    log_line(NULL, line);
    return 0;
}

static int follow_another(struct served *served, const struct settings *settings, char *fault)
{
    const struct penstock_options opening = {.size = sizeof(opening),
                                             .secret_file = settings->serve.node.secret_file};
    const struct follow_settings *from = &settings->follow;
    const struct penstock_follow_options following = {
        .size = sizeof(following),
        .url = from->follow,
        .secret_file = from->follow_secret_file ? from->follow_secret_file : settings->serve.node.secret_file,
        .prefix = from->follow_prefix,
        .prefix_bytes = from->follow_prefix ? strlen(from->follow_prefix) : 0,
        .log = log_line};
    const struct pst_node *node = pst_serve_node(served->node);
    int r = 0;

    for (int i = 0; r == 0 && pst_node_url(node, i); i++)
        r = strcmp(pst_node_url(node, i), from->follow) == 0 ? -EINVAL : 0;
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "follow: %s: a node cannot follow itself", from->follow);
        return r;
    }
    r = penstock_open(pst_serve_unix_url(served->node), &opening, &served->mirror);
    if (r == 0)
        r = penstock_follow_open(served->mirror, &following, &served->follow);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "follow: %s", penstock_error());
    return r;
}

/* A pool's master is a node, too, and in no pool itself. */
static int open_master(struct served *served, const struct settings *settings, char *fault)
{
    if (strcmp(settings->role.role, "master") != 0) {
        snprintf(fault, PST_FAULT_BYTES, "role: '%.100s' is not 'master'", settings->role.role);
        return -EINVAL;
    }
    if (settings->serve.member.master.count) {
        snprintf(fault, PST_FAULT_BYTES, "master: a pool's master joins none");
        return -EINVAL;
    }
    return pst_master_open(&settings->master, log_line, NULL, &served->master, fault);
}

static int open_all(struct settings *settings, struct served *served, char *fault)
{
    struct pst_node_role role = {.carry_out = pst_master_carry_out};
    char line[LINE_BYTES] = "settings: ";
    int r = 0;

    if (settings->door.tsgrpc)
        r = pst_door_open(&settings->door, &served->door, fault);
    /* A door reads values in place, and a follower talks to its node, over a unix socket. */
    if (r == 0 && (served->door || settings->follow.follow))
        r = pst_serve_name_socket(&settings->serve, served->door ? "tsgrpc" : "follower", fault);
    if (r < 0)
        return r;
    pst_options_print(&options, settings, line + strlen(line), sizeof(line) - strlen(line));
    log_line(NULL, line);
    if (settings->role.role)
        r = open_master(served, settings, fault);
    role.ctx = served->master;
    if (r == 0)
        r = pst_serve_open(&settings->serve, served->master ? &role : NULL, log_line, NULL, &served->node,
                           fault);
    if (r == 0 && served->door)
        r = serve_door(served, settings, fault);
    if (r == 0 && settings->follow.follow)
        r = follow_another(served, settings, fault);
    return r;
}

static void close_all(struct served *served)
{
    penstock_follow_close(served->follow);
    penstock_close(served->mirror);
    pst_door_close(served->door);
    pst_serve_close(served->node);
    pst_master_close(served->master);
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
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    name_bus_errors();
    raise_descriptor_limit();
    report_inherited();
    r = open_all(settings, &served, fault);
    if (r < 0) {
        log_line(NULL, fault);
        close_all(&served);
        return r == -EINVAL ? EXIT_USAGE : EXIT_FAILURE;
    }
    serve(pst_serve_node(served.node), &signals);
    log_line(NULL, "stopping");
    close_all(&served);
    log_line(NULL, "stopped");
    return 0;
}

int main(int argc, char **argv)
{
    struct settings settings = {0};
    char fault[PST_FAULT_BYTES];
    int r;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return 0;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("penstockd %d.%d.%d\n", PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR,
                   PENSTOCK_VERSION_PATCH);
            return 0;
        }
    }
    r = read_settings(argv + 1, &settings, fault);
    r = r < 0 ? usage(fault) : run(&settings);
    pst_options_free(&options, &settings);
    return r;
}
