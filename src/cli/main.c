/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: penstock: finds the command, reads its flags, opens the store. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/paths.h"

#include <stdarg.h>

#define PST_OPTION_SETTINGS struct pst_cli
static const struct pst_options options = PST_OPTION_TABLE(PST_CLI_OPTIONS);

/* Flags that every command takes; a command's own are in its row. */
#define FLAGS_OF_ALL "url secret_file timeout json"

static const struct command {
    const char *name;
    const char *arguments;
    const char *text;
    int (*run)(struct pst_cli *cli);
    int count_min, count_max; /* of arguments */
    size_t instead;           /* a STRING of the flags that stands in for all of them; 0: none */
    const char *flags;
    bool opens; /* opens stores itself */
} commands[] = {
    {"put", "KEY [FILE|-]", "store a file or standard input under KEY, or with -r DIR PREFIX a folder",
     pst_cmd_put, 1, 2, offsetof(struct pst_cli, files),
     "files recursive prefix if_absent if_generation checksum ttl durable", false},
    {"get", "KEY [FILE|-]", "write KEY's value to a file or standard output, or with -r PREFIX DIR a folder",
     pst_cmd_get, 1, 2, offsetof(struct pst_cli, files), "files recursive prefix sha256 wait range", false},
    {"ls", "[PREFIX]", "list keys in order", pst_cmd_ls, 0, 1, 0, "long_ bytes", false},
    {"rm", "KEY...", "delete keys, or with --prefix all that begin with it", pst_cmd_rm, 1, INT32_MAX,
     offsetof(struct pst_cli, prefix), "prefix if_generation", false},
    {"stat", "[KEY]", "figures of the store, or of one value", pst_cmd_stat, 0, 1, 0, "all bytes", false},
    {"ping", "", "round trip to every shard", pst_cmd_ping, 0, 0, 0, "", false},
    {"flush", "", "end when a crash would lose nothing any more; wants an SSD", pst_cmd_flush, 0, 0, 0, "",
     false},
    {"clear", "", "delete everything that is not pinned", pst_cmd_clear, 0, 0, 0, "", false},
    {"dump", "[PREFIX] [FILE|-]", "write all keys and values as one checked stream", pst_cmd_dump, 0, 2, 0,
     "", false},
    {"load", "[FILE|-]", "store what dump wrote", pst_cmd_load, 0, 1, 0, "if_absent replace checksum", false},
    {"watch", "[PREFIX]", "print what happens to keys, a line each", pst_cmd_watch, 0, 1, 0, "", false},
    {"follow", "SOURCE [PREFIX]", "keep the store the same as the one at SOURCE", pst_cmd_follow, 1, 2, 0, "",
     false},
    {"node", "ACTION [NODE]", "list the nodes of a pool; drain or undrain one; forgive losses", pst_cmd_node,
     1, 2, 0, "", false},
    {"bench", "", "measure", pst_cmd_bench, 0, 0, 0,
     "op prefix size keys batch inflight seconds fill mix until_full", false},
    {"replay", "TRACE.jsonl", "play a trace of requests for pages, and tell how many hit", pst_cmd_replay, 1,
     1, 0, "page_size policy capacity ssd ssd_capacity clients belady plot", true},
    {"tree", "put|get|broadcast FROM TO",
     "a file or folder to tree://HOST:PORT/NAME of a data store, or from there, or from others who fetch it",
     pst_cmd_tree, 3, 3, 0, "token_file force filter group members", true},
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

int pst_cli_fail(int result)
{
    const char *why = result < 0 ? penstock_error() : penstock_result_text(result);

    pst_assert(result != PENSTOCK_OK); /* that is no failure */
    fprintf(stderr, "penstock: %s\n", *why ? why : penstock_result_text(result));
    return pst_cli_exit_code(result);
}

int pst_cli_fail_key(const char *key, int result)
{
    pst_assert(key && result != PENSTOCK_OK);
    if (result < 0) /* the library's text names the key */
        return pst_cli_fail(result);
    fprintf(stderr, "penstock: key '%.100s': %s\n", key, penstock_result_text(result));
    return pst_cli_exit_code(result);
}

int pst_cli_usage(const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    pst_printable(text);
    fprintf(stderr, "penstock: %s (see penstock --help)\n", text);
    return PST_EXIT_USAGE;
}

/* ---- help ---- */

static bool word_in(const char *list, const char *word)
{
    size_t len = strlen(word);

    pst_assert(len > 0);
    for (const char *at = list; *at; at += strcspn(at, " "), at += *at == ' ') {
        if (strncmp(at, word, len) == 0 && (at[len] == ' ' || !at[len]))
            return true;
    }
    return false;
}

static bool command_takes(const struct command *command, const struct pst_option *row)
{
    return word_in(FLAGS_OF_ALL, row->name) || word_in(command->flags, row->name);
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < pst_count_of(commands); i++) {
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    }
    return NULL;
}

static int help_all(void)
{
    printf("usage: penstock COMMAND [OPTION...] [ARGUMENT...]\n"
           "       penstock help COMMAND\n\ncommands:\n");
    for (size_t i = 0; i < pst_count_of(commands); i++)
        printf("  %-6s %-17s %s\n", commands[i].name, commands[i].arguments, commands[i].text);
    printf("\noptions:\n");
    pst_options_help(&options, stdout);
    printf("\nexit codes: 0 done, 1 not found, 2 usage, 3 no space, 4 not allowed, 5 unreachable, 6 corrupt, "
           "7 other\n");
    return PST_EXIT_OK;
}

static int help_command(const struct command *command)
{
    printf("usage: penstock %s [OPTION...]%s%s\n%s\n\noptions:\n", command->name,
           *command->arguments ? " " : "", command->arguments, command->text);
    for (size_t i = 0; i < options.count; i++) {
        if (command_takes(command, &options.rows[i]))
            pst_options_help_row(&options.rows[i], stdout);
    }
    return PST_EXIT_OK;
}

/* --version, --help behind any command or none, and `penstock help [COMMAND]`. */
static int answer(const char *flag, char *const *args)
{
    const char *name = args[0] && strcmp(args[0], "help") == 0 ? args[1] : args[0];
    const struct command *command = name ? find_command(name) : NULL;

    if (flag && strcmp(flag, "--version") == 0) {
        printf("penstock %d.%d.%d\n", PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR, PENSTOCK_VERSION_PATCH);
        return PST_EXIT_OK;
    }
    if (!name)
        return help_all();
    return command ? help_command(command) : pst_cli_usage("unknown command '%.100s'", name);
}

/* ---- arguments ---- */

/* A flag of one letter, written out. */
static char *written_out(char *arg)
{
    static char recursive[] = "--recursive";

    return strcmp(arg, "-r") == 0 ? recursive : arg;
}

/*
 * Flags may stand anywhere, up to "--", and go to @flags; what remains goes to @args. --help and --version,
 * which run no command, go to @asked.
 */
static int read_arguments(struct pst_cli *cli, char **argv, char **args, char **flags, const char **asked,
                          char fault[PST_FAULT_BYTES])
{
    bool only_args = false;
    int used = 1;

    pst_assert(cli->arg_count == 0);
    for (; *argv; argv += used) {
        used = 1;
        if (!only_args && strcmp(*argv, "--") == 0) {
            only_args = true;
            continue;
        }
        if (!only_args)
            *argv = written_out(*argv);
        if (!only_args && (strcmp(*argv, "--help") == 0 || strcmp(*argv, "--version") == 0)) {
            *asked = *argv;
            continue;
        }
        if (!only_args)
            used = pst_options_set_flag(&options, cli, argv, fault);
        if (used < 0)
            return used;
        if (only_args || used == 0) {
            args[cli->arg_count++] = *argv;
            used = 1;
        } else {
            *flags++ = *argv;
        }
    }
    return 0;
}

/* What scripts set once for all commands. */
static int read_environment(struct pst_cli *cli, char fault[PST_FAULT_BYTES])
{
    static const char *const names[][2] = {{"PENSTOCK_URL", "url"}, {"PENSTOCK_SECRET_FILE", "secret_file"}};
    int r = 0;

    for (size_t i = 0; i < pst_count_of(names) && r == 0; i++) {
        const char *value = getenv(names[i][0]);

        r = value ? pst_options_set(&options, cli, names[i][1], value, fault) : 0;
    }
    return r;
}

int pst_cli_open(struct pst_cli *cli, const char *url)
{
    struct penstock_options opening = {
        .size = sizeof(opening), .secret_file = cli->secret_file, .timeout_ms = (uint32_t)cli->timeout};
    char path[108] = "", local[140];
    int r = url ? 0 : pst_default_socket(PST_NODE_SOCKET, false, path, sizeof(path));

    pst_assert(!cli->store);
    if (r < 0) {
        fprintf(stderr, "penstock: %s, or say where the node is with --url or PENSTOCK_URL\n",
                pst_error_text());
        return pst_cli_exit_code(r);
    }
    snprintf(local, sizeof(local), "node+unix://%s", path);
    r = penstock_open(url ? url : local, &opening, &cli->store);
    if (!url && r == -ECONNREFUSED) {
        fprintf(stderr,
                "penstock: no node listens on %s: start penstockd, or say where with --url or PENSTOCK_URL\n",
                path);
        return PST_EXIT_UNREACHABLE;
    }
    return r < 0 ? pst_cli_fail(r) : 0;
}

static bool arguments_fit(const struct pst_cli *cli, const struct command *command)
{
    const char *const *instead = (const void *)((const char *)cli + command->instead);

    pst_assert(command->count_min <= command->count_max && cli->arg_count >= 0);
    if (command->instead && *instead)
        return cli->arg_count == 0;
    return cli->arg_count >= command->count_min && cli->arg_count <= command->count_max;
}

static int run_command(struct pst_cli *cli, const struct command *command)
{
    int code = command->opens ? 0 : pst_cli_open(cli, cli->url);

    if (code == 0)
        code = command->run(cli);
    if (fflush(stdout) != 0 && code == 0) {
        fprintf(stderr, "penstock: standard output: %s\n", strerror(errno));
        code = PST_EXIT_OTHER;
    }
    penstock_close(cli->store);
    return code;
}

static int refuse_arguments(const struct command *command)
{
    const char *flag = NULL;

    for (size_t i = 0; command->instead && i < options.count; i++) {
        if (options.rows[i].offset == command->instead)
            flag = options.rows[i].name;
    }
    pst_assert(!flag == !command->instead);
    return pst_cli_usage("%s takes %s%s%s", command->name,
                         *command->arguments ? command->arguments : "no arguments", flag ? ", or --" : "",
                         flag ? flag : "");
}

/* Return: the first of @flags that @command does not take. */
static const char *foreign_flag(const struct command *command, char *const *flags)
{
    for (; *flags; flags++) {
        const struct pst_option *row = pst_options_find_flag(&options, *flags);

        pst_assert(row); /* it has been read */
        if (!command_takes(command, row))
            return *flags;
    }
    return NULL;
}

static int check_and_run(struct pst_cli *cli, const struct command *command, char *const *flags)
{
    const char *foreign = foreign_flag(command, flags);

    if (foreign)
        return pst_cli_usage("%s does not take %.*s", command->name, (int)strcspn(foreign, "="), foreign);
    return arguments_fit(cli, command) ? run_command(cli, command) : refuse_arguments(command);
}

static int find_and_run(struct pst_cli *cli, char *const *args, char *const *flags)
{
    const struct command *command = args[0] ? find_command(args[0]) : NULL;

    if (!args[0])
        return pst_cli_usage("no command");
    if (!command)
        return pst_cli_usage("unknown command '%.100s'", args[0]);
    pst_assert(cli->arg_count > 0);
    cli->args = args + 1;
    cli->arg_count--;
    return check_and_run(cli, command, flags);
}

int main(int argc, char **argv)
{
    pst_cleanup_free char **args = calloc((size_t)argc + 1, sizeof(*args));
    pst_cleanup_free char **flags = calloc((size_t)argc + 1, sizeof(*flags));
    struct pst_cli cli = {0};
    const char *asked = NULL;
    char fault[PST_FAULT_BYTES];
    int code, r;

    if (!args || !flags) {
        fprintf(stderr, "penstock: out of memory\n");
        return PST_EXIT_OTHER;
    }
    pst_output_begin();
    r = pst_options_preset(&options, &cli, fault);
    if (r == 0)
        r = read_environment(&cli, fault);
    if (r == 0)
        r = read_arguments(&cli, argv + 1, args, flags, &asked, fault);
    if (r < 0)
        code = pst_cli_usage("%s", fault);
    else if (asked || (args[0] && strcmp(args[0], "help") == 0))
        code = answer(asked, args);
    else
        code = find_and_run(&cli, args, flags);
    pst_options_free(&options, &cli);
    return code;
}
