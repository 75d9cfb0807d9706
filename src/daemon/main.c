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
        "the command line wins over the environment, the environment over the file; lists add up.\n\n");
    pst_options_help(pst_node_options, pst_node_option_count, stdout);
    printf("  --%-16s %-10s %s\n", "config", "FILE", "file with 'name = value' lines");
    printf("  --%-16s %-10s %s\n", "help", "", "this text");
    printf("  --%-16s %-10s %s\n", "version", "", "version");
    printf("\nSIGTERM and SIGINT end the node; SIGUSR1 logs how many keys it stores.\n");
}

/* Splits "--name=value" or "--name value". Return: the arguments used, 0 when it is neither. */
static int split_flag(char **argv, char name[64], const char **value)
{
    const char *equals;

    if (strncmp(argv[0], "--", 2) != 0)
        return 0;
    equals = strchr(argv[0], '=');
    snprintf(name, 64, "%.*s", (int)(equals ? equals - argv[0] - 2 : 63), argv[0] + 2);
    *value = equals ? equals + 1 : argv[1];
    return equals ? 1 : *value ? 2 : 0;
}

static int usage(const char *fault)
{
    fprintf(stderr, "penstockd: %s (see penstockd --help)\n", fault);
    return EXIT_USAGE;
}

/* Two passes: the file that --config names comes first, what stands beside it wins. */
static int read_flags(char **argv, struct pst_node_settings *settings, const char **config, char *fault)
{
    for (char **at = argv + 1; *at;) {
        const char *value;
        char name[64];
        int used = split_flag(at, name, &value), r = 0;

        if (!used) {
            snprintf(fault, PST_FAULT_BYTES, "'%.100s': not an option, or its value is missing", *at);
            return -EINVAL;
        }
        if (strcmp(name, "config") == 0)
            *config = value;
        else if (settings)
            r = pst_options_set(pst_node_options, pst_node_option_count, settings, name, value, fault);
        if (r < 0)
            return r;
        at += used;
    }
    return 0;
}

static int read_settings(char **argv, struct pst_node_settings *settings, char *fault)
{
    const char *config = getenv("PENSTOCK_CONFIG");
    int r;

    r = pst_options_preset(pst_node_options, pst_node_option_count, settings, fault);
    if (r == 0)
        r = read_flags(argv, NULL, &config, fault);
    if (r == 0 && config)
        r = pst_options_file(pst_node_options, pst_node_option_count, settings, config, fault);
    if (r == 0)
        r = pst_options_environment(pst_node_options, pst_node_option_count, settings, fault);
    if (r == 0)
        r = read_flags(argv, settings, &config, fault);
    if (r == 0 && !settings->unix && !settings->listen.count) {
        char path[108];

        pst_default_socket(path, sizeof(path));
        r = pst_options_set(pst_node_options, pst_node_option_count, settings, "unix", path, fault);
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
    pst_options_print(pst_node_options, pst_node_option_count, settings, line + strlen(line),
                      sizeof(line) - strlen(line));
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
    r = read_settings(argv, &settings, fault);
    r = r < 0 ? usage(fault) : run(&settings);
    pst_options_free(pst_node_options, pst_node_option_count, &settings);
    return r;
}
