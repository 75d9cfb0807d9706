/* main.c: penstockd: settings from a file, the environment and the command line, one node, signals. */
#include "base/options.h"
#include "base/paths.h"
#include "node/node.h"

#include <penstock/penstock.h>

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

enum { EXIT_USAGE = 2 };

/* Of the daemon, not of the node. */
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
    char stamp[32];

    (void)ctx;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
    fprintf(stderr, "%s.%03ldZ penstockd: %s\n", stamp, now.tv_nsec / 1000000, line);
}

static void help(void)
{
    printf(
        "usage: penstockd [OPTION...]\n\n"
        "Serves this machine's memory as a store of named values.\n"
        "Options may also be set as PENSTOCK_NAME in the environment and as 'name = value' lines of a file;\n"
        "the command line wins over the environment, the environment over the file; what may be repeated is\n"
        "taken from one of them alone.\n\n");
    pst_options_help(&pst_node_options, stdout);
    pst_options_help(&daemon_options, stdout);
    printf("  --%-16s %-10s %s\n", "help", "", "this text");
    printf("  --%-16s %-10s %s\n", "version", "", "version");
    printf("\nSIGTERM and SIGINT end the node; SIGUSR1 logs how many keys it stores.\n");
}

static int usage(const char *fault)
{
    fprintf(stderr, "penstockd: %s (see penstockd --help)\n", fault);
    return EXIT_USAGE;
}

static int read_flags(char *const *argv, struct daemon_settings *own, struct pst_node_settings *settings,
                      char *fault)
{
    int used;

    pst_options_next_source(&pst_node_options, settings);
    for (; *argv; argv += used) {
        used = pst_options_set_flag(&daemon_options, own, argv, fault);
        if (used == -ENOENT)
            used = pst_options_set_flag(&pst_node_options, settings, argv, fault);
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
    struct pst_node_settings passed_over = {0};
    int r = pst_options_preset(&daemon_options, own, fault);

    if (r == 0)
        r = pst_options_environment(&daemon_options, own, fault);
    if (r == 0)
        r = read_flags(argv, own, &passed_over, fault);
    pst_options_free(&pst_node_options, &passed_over);
    return r;
}

static int read_settings(char *const *argv, struct pst_node_settings *settings, char *fault)
{
    struct daemon_settings own = {0};
    int r = read_config_name(argv, &own, fault);

    if (r == 0)
        r = pst_options_preset(&pst_node_options, settings, fault);
    if (r == 0 && own.config)
        r = pst_options_file(&pst_node_options, settings, own.config, fault);
    if (r == 0)
        r = pst_options_environment(&pst_node_options, settings, fault);
    if (r == 0)
        r = read_flags(argv, &own, settings, fault);
    if (r == 0 && !settings->unix && !settings->listen.count) {
        char path[108];

        pst_default_socket(path, sizeof(path));
        r = pst_options_set(&pst_node_options, settings, "unix", path, fault);
    }
    pst_options_free(&daemon_options, &own);
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

static int run(const struct pst_node_settings *settings)
{
    struct pst_node *node;
    char fault[PST_FAULT_BYTES], line[2048] = "settings: ";
    sigset_t signals;
    int r;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    report_inherited();
    pst_options_print(&pst_node_options, settings, line + strlen(line), sizeof(line) - strlen(line));
    log_line(NULL, line);
    r = pst_node_open(settings, log_line, NULL, &node, fault);
    if (r < 0) {
        log_line(NULL, fault);
        return r == -EINVAL ? EXIT_USAGE : EXIT_FAILURE;
    }
    serve(node, &signals);
    log_line(NULL, "stopping");
    pst_node_close(node);
    log_line(NULL, "stopped");
    return 0;
}

int main(int argc, char **argv)
{
    struct pst_node_settings settings = {0};
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
    pst_options_free(&pst_node_options, &settings);
    return r;
}
