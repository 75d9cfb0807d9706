/* main.c: penstock: finds the command, reads its flags, opens the store. */
#include "cli/cli.h"

#include "base/paths.h"

#include <stdarg.h>

static const struct pst_option options[] = {
#define X(TYPE, name, preset, min, max, unit, text)                                                          \
    PST_OPTION_ROW(struct pst_cli, TYPE, name, preset, min, max, unit, text)
    PST_CLI_OPTIONS(X)
#undef X
};

static const struct command {
    const char *name;
    const char *usage;
    int (*run)(struct pst_cli *cli);
} commands[] = {
    {"put", "put KEY [FILE|-]        store a file or standard input under KEY", pst_cmd_put},
    {"get", "get KEY [FILE|-]        write KEY's value to a file or standard output", pst_cmd_get},
    {"ls", "ls [PREFIX]             list keys in order", pst_cmd_ls},
    {"rm", "rm KEY...               delete keys, or with --prefix all that begin with it", pst_cmd_rm},
    {"stat", "stat [KEY]              figures of the store, or of one value", pst_cmd_stat},
    {"ping", "ping                    round trip to every shard", pst_cmd_ping},
    {"clear", "clear                   delete everything that is not pinned", pst_cmd_clear},
    {"dump", "dump [PREFIX] [FILE|-]  write all keys and values as one checked stream", pst_cmd_dump},
    {"load", "load [FILE|-]           store what dump wrote", pst_cmd_load},
    {"watch", "watch [PREFIX]          print what happens to keys, a line each", pst_cmd_watch},
    {"bench", "bench                   measure", pst_cmd_bench},
};

int pst_cli_exit_code(int result)
{
    switch (result) {
    case PENSTOCK_OK:
        return PST_EXIT_OK;
    case PENSTOCK_MISS:
        return PST_EXIT_NOT_FOUND;
    case -EINVAL:
    case -ENAMETOOLONG:
    case -ERANGE:
        return PST_EXIT_USAGE;
    case -ENOSPC:
    case -EFBIG:
        return PST_EXIT_NO_SPACE;
    case -EACCES:
    case -EPERM:
        return PST_EXIT_NOT_ALLOWED;
    case -ECONNREFUSED:
    case -ECONNRESET:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
    case -ETIMEDOUT:
    case -EPROTO:
    case -EPROTONOSUPPORT:
        return PST_EXIT_UNREACHABLE;
    case -EBADMSG:
        return PST_EXIT_CORRUPT;
    default:
        return PST_EXIT_OTHER;
    }
}

int pst_cli_missing(const char *key)
{
    pst_assert(key);
    fprintf(stderr, "penstock: key '%s': %s\n", key, penstock_result_text(PENSTOCK_MISS));
    return PST_EXIT_NOT_FOUND;
}

int pst_cli_fail(int result)
{
    const char *why = result < 0 ? penstock_error() : penstock_result_text(result);

    pst_assert(result != PENSTOCK_OK); /* that is no failure */
    fprintf(stderr, "penstock: %s\n", *why ? why : penstock_result_text(result));
    return pst_cli_exit_code(result);
}

int pst_cli_usage(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "penstock: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, " (see penstock --help)\n");
    return PST_EXIT_USAGE;
}

static int help(void)
{
    printf("usage: penstock COMMAND [OPTION...] [ARGUMENT...]\n\ncommands:\n");
    for (size_t i = 0; i < pst_count_of(commands); i++)
        printf("  %s\n", commands[i].usage);
    printf("\noptions:\n");
    pst_options_help(options, pst_count_of(options), stdout);
    printf("\nexit codes: 0 done, 1 not found, 2 usage, 3 no space, 4 not allowed, 5 unreachable, 6 corrupt, "
           "7 other\n");
    return 0;
}

/* Sets the flag at argv[*i]. Return: 0 or an exit code. */
static int set_flag(struct pst_cli *cli, int argc, char **argv, int *i)
{
    const char *flag = argv[*i] + 2, *equals = strchr(flag, '='), *value = equals ? equals + 1 : NULL;
    const struct pst_option *option =
        pst_option_find(options, pst_count_of(options), flag, strcspn(flag, "="));
    char fault[PST_FAULT_BYTES], name[64];

    pst_assert(*i > 0 && *i < argc);
    if (!option)
        return pst_cli_usage("unknown option '%s'", argv[*i]);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(flag, "="), flag);
    if (!value && option->type == PST_OPTION_FLAG)
        value = "yes";
    if (!value && option->unit[0] == '[') /* which says that the value may be left out */
        value = "0";
    if (!value && *i + 1 < argc)
        value = argv[++*i];
    if (!value)
        return pst_cli_usage("option '%s' needs a value", argv[*i]);
    if (pst_options_set(options, pst_count_of(options), cli, name, value, fault) < 0)
        return pst_cli_usage("%s", fault);
    return 0;
}

/* Flags may stand anywhere; what remains goes to @args. */
static int read_arguments(struct pst_cli *cli, int argc, char **argv, char **args)
{
    bool only_args = false;

    pst_assert(cli->arg_count == 0);
    for (int i = 1; i < argc; i++) {
        int r = 0;

        if (only_args || strncmp(argv[i], "--", 2) != 0)
            args[cli->arg_count++] = argv[i];
        else if (!argv[i][2])
            only_args = true;
        else
            r = set_flag(cli, argc, argv, &i);
        if (r)
            return r;
    }
    return 0;
}

static int open_store(struct pst_cli *cli)
{
    struct penstock_options opening = {
        .size = sizeof(opening), .secret_file = cli->secret_file, .timeout_ms = (uint32_t)cli->timeout};
    char path[108], url[140];
    int r;

    pst_assert(!cli->store);
    pst_default_socket(path, sizeof(path));
    snprintf(url, sizeof(url), "node+unix://%s", path);
    r = penstock_open(cli->url ? cli->url : url, &opening, &cli->store);
    if (!cli->url && r == -ECONNREFUSED) {
        fprintf(stderr,
                "penstock: no node listens on %s: start penstockd, or say where with --url or PENSTOCK_URL\n",
                path);
        return PST_EXIT_UNREACHABLE;
    }
    return r < 0 ? pst_cli_fail(r) : 0;
}

static int run_command(struct pst_cli *cli, char **args)
{
    pst_assert(args[0] && cli->arg_count > 0);
    for (size_t i = 0; i < pst_count_of(commands); i++) {
        int code;

        if (strcmp(args[0], commands[i].name) != 0)
            continue;
        cli->args = args + 1;
        cli->arg_count--;
        code = open_store(cli);
        if (code == 0)
            code = commands[i].run(cli);
        if (fflush(stdout) != 0 && code == 0) {
            fprintf(stderr, "penstock: standard output: %s\n", strerror(errno));
            code = PST_EXIT_OTHER;
        }
        penstock_close(cli->store);
        return code;
    }
    return pst_cli_usage("unknown command '%s'", args[0]);
}

int main(int argc, char **argv)
{
    pst_cleanup_free char **args = calloc((size_t)argc + 1, sizeof(*args));
    struct pst_cli cli = {0};
    char fault[PST_FAULT_BYTES];
    int code, r;

    if (!args) {
        fprintf(stderr, "penstock: out of memory\n");
        return PST_EXIT_OTHER;
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            return help();
        if (strcmp(argv[i], "--version") == 0) {
            printf("penstock %d.%d.%d\n", PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR,
                   PENSTOCK_VERSION_PATCH);
            return 0;
        }
    }
    r = pst_options_preset(options, pst_count_of(options), &cli, fault);
    if (r == 0 && getenv("PENSTOCK_URL"))
        r = pst_options_set(options, pst_count_of(options), &cli, "url", getenv("PENSTOCK_URL"), fault);
    if (r == 0 && getenv("PENSTOCK_SECRET_FILE"))
        r = pst_options_set(options, pst_count_of(options), &cli, "secret_file",
                            getenv("PENSTOCK_SECRET_FILE"), fault);
    code = r < 0 ? pst_cli_usage("%s", fault) : read_arguments(&cli, argc, argv, args);
    if (code == 0)
        code = args[0] ? run_command(&cli, args) : pst_cli_usage("no command");
    pst_options_free(options, pst_count_of(options), &cli);
    return code;
}
