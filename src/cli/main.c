/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: penstock: finds the command, reads its flags, opens the store. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/paths.h"

#include <stdarg.h>

#define PST_OPTION_SETTINGS struct pst_cli
static const struct pst_options options = PST_OPTION_TABLE(PST_CLI_OPTIONS);

/* Flags that every command takes; a command's own are in its row. Those of a group have no node. */
#define FLAGS_OF_ALL                                                                                         \
    "url secret_file transport tls tls_ca tls_certificate tls_key tls_name traceparent timeout json"
#define FLAGS_OF_GROUP "timeout json"
/* How commands of the data store find it. */
#define DATA "store_ token_file namespace ca"
#define MOVE " rsync transport force in_place filter "

static const struct command {
    const char *name; /* of a group's: two words */
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
    {"top", "", "figures of the store time after time, and of a pool's nodes", pst_cmd_top, 0, 0, 0,
     "every count", false},
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
     1, 2, 0, "wait", false},
    {"bench", "", "measure", pst_cmd_bench, 0, 0, 0,
     "op prefix size keys batch inflight seconds fill mix until_full", false},
    {"replay", "TRACE.jsonl", "play a trace of requests for pages, and tell how many hit", pst_cmd_replay, 1,
     1, 0, "page_size policy capacity ssd ssd_capacity clients belady plot", true},
    {"tree", "put|get|broadcast FROM TO, or ls|rm|prune STORE[/NAME]",
     "a file or folder to tree://HOST:PORT/NAME of a data store, or from there, or from others who fetch it; "
     "or to STORE/NAME of a pool or a node, or from there",
     pst_cmd_tree, 2, 3, 0, "token_file force in_place filter group members durable long_ bytes", true},
    {"data put", "KEY PATH...", "files and folders into a data store, under KEY", pst_cmd_data_put, 2,
     INT32_MAX, 0, DATA MOVE "contents lifespan", true},
    {"data get", "KEY [DIR]", "what is under KEY into a folder, this one unless named", pst_cmd_data_get, 1,
     2, 0, DATA MOVE "contents", true},
    {"data ls", "[KEY]", "list what is under KEY", pst_cmd_data_ls, 0, 1, 0, DATA " long_", true},
    {"data rm", "KEY...", "delete keys with their files, or with --prefix all that begin with it",
     pst_cmd_data_rm, 1, INT32_MAX, offsetof(struct pst_cli, prefix), DATA " prefix recursive", true},
    {"data mkdir", "KEY...", "make folders, and those in front of them", pst_cmd_data_mkdir, 1, INT32_MAX, 0,
     DATA, true},
    {"data sync", "DIR KEY", "what DIR has becomes what KEY has", pst_cmd_data_sync, 2, 2, 0,
     DATA MOVE "lifespan delete_", true},
    {"data watch", "GROUP", "how the members of a broadcast stand, until none fetches any more",
     pst_cmd_data_watch, 1, 1, 0, DATA, true},
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
    case -EREMCHG:
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
    pst_assert(key);
    pst_assert(result != PENSTOCK_OK);
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

int pst_cli_wait_ms(const struct pst_cli *cli, uint64_t *wait_ms)
{
    const char *end;

    pst_assert(cli->wait);
    if (pst_parse_digits(cli->wait, &end, wait_ms) < 0 || *end || *wait_ms > INT32_MAX)
        return pst_cli_usage("wait: '%.100s' is not a number of milliseconds up to %d", cli->wait, INT32_MAX);
    return 0;
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
    const char *common = strchr(command->name, ' ') ? FLAGS_OF_GROUP : FLAGS_OF_ALL;

    return word_in(common, row->name) || word_in(command->flags, row->name);
}

/* Whether the command is of the group @word. */
static bool is_of_group(const struct command *command, const char *word)
{
    size_t len = strlen(word);

    return strncmp(command->name, word, len) == 0 && command->name[len] == ' ';
}

static bool is_group(const char *word)
{
    for (size_t i = 0; i < pst_count_of(commands); i++) {
        if (is_of_group(&commands[i], word))
            return true;
    }
    return false;
}

/* By the first of @args, or the first two. *@words: how many. Return: NULL there is none. */
static const struct command *find_command(char *const *args, int *words)
{
    pst_assert(args[0]);
    *words = 1 + (args[1] && is_group(args[0]));
    for (size_t i = 0; i < pst_count_of(commands); i++) {
        const char *name = commands[i].name;

        if (*words == 1 && strcmp(name, args[0]) == 0)
            return &commands[i];
        if (*words == 2 && is_of_group(&commands[i], args[0]) &&
            strcmp(name + strlen(args[0]) + 1, args[1]) == 0)
            return &commands[i];
    }
    return NULL;
}

static int refuse_command(char *const *args)
{
    if (!is_group(args[0]))
        return pst_cli_usage("unknown command '%.100s'", args[0]);
    if (!args[1])
        return pst_cli_usage("%s: which of its commands? 'penstock help %s' lists them", args[0], args[0]);
    return pst_cli_usage("unknown command '%.40s %.100s'", args[0], args[1]);
}

/* @group: NULL all. */
static void list_commands(const char *group)
{
    printf("commands:\n");
    for (size_t i = 0; i < pst_count_of(commands); i++) {
        if (!group || is_of_group(&commands[i], group))
            printf("  %-11s %-17s %s\n", commands[i].name, commands[i].arguments, commands[i].text);
    }
}

static int help_all(void)
{
    printf("usage: penstock COMMAND [OPTION...] [ARGUMENT...]\n"
           "       penstock help COMMAND\n\n");
    list_commands(NULL);
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
    char *const *of = args[0] && strcmp(args[0], "help") == 0 ? args + 1 : args;
    const struct command *command;
    int words;

    if (flag && strcmp(flag, "--version") == 0) {
        printf("penstock %d.%d.%d\n", PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR, PENSTOCK_VERSION_PATCH);
        return PST_EXIT_OK;
    }
    if (!of[0])
        return help_all();
    command = find_command(of, &words);
    if (command)
        return help_command(command);
    if (of[1] || !is_group(of[0]))
        return refuse_command(of);
    printf("usage: penstock %s COMMAND [OPTION...] [ARGUMENT...]\n\n", of[0]);
    list_commands(of[0]);
    return PST_EXIT_OK;
}

/* ---- arguments ---- */

/* A flag of one letter, written out. */
static char *written_out(char *arg)
{
    static char recursive[] = "--recursive", long_[] = "--long";

    if (strcmp(arg, "-l") == 0)
        return long_;
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
    static const char *const names[][2] = {{"PENSTOCK_URL", "url"},
                                           {"PENSTOCK_SECRET_FILE", "secret_file"},
                                           {"PENSTOCK_TLS", "tls"},
                                           {"PENSTOCK_TLS_CA", "tls_ca"},
                                           {"PENSTOCK_TLS_CERTIFICATE", "tls_certificate"},
                                           {"PENSTOCK_TLS_KEY", "tls_key"},
                                           {"PENSTOCK_TLS_NAME", "tls_name"}};
    int r = 0;

    for (size_t i = 0; i < pst_count_of(names) && r == 0; i++) {
        const char *value = getenv(names[i][0]);

        r = value ? pst_options_set(&options, cli, names[i][1], value, fault) : 0;
    }
    return r;
}

/* What the surroundings hand on is nobody's mistake here: what is no trace counts for nothing. Return: 0, or
 * -EINVAL the flag's is none. */
static int begin_trace(const struct pst_cli *cli)
{
    const char *inherited = getenv("TRACEPARENT");

    if (cli->traceparent)
        return penstock_trace(cli->traceparent);
    if (inherited)
        (void)penstock_trace(inherited);
    return 0;
}

int pst_cli_open(struct pst_cli *cli, const char *url)
{
    struct penstock_options opening = {.size = sizeof(opening),
                                       .secret_file = cli->secret_file,
                                       .timeout_ms = (uint32_t)cli->timeout,
                                       .transport = cli->transport,
                                       .tls = cli->tls,
                                       .tls_ca = cli->tls_ca,
                                       .tls_certificate = cli->tls_certificate,
                                       .tls_key = cli->tls_key,
                                       .tls_name = cli->tls_name};
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

    pst_assert(command->count_min <= command->count_max);
    pst_assert(cli->arg_count >= 0);
    if (command->instead && *instead)
        return cli->arg_count == 0;
    return cli->arg_count >= command->count_min && cli->arg_count <= command->count_max;
}

/* What a command has flushed itself, and in vain, is no longer there to be flushed. Return: an exit code. */
static int finish_output(void)
{
    bool failed = ferror(stdout);

    if (fflush(stdout) == 0 && !failed)
        return PST_EXIT_OK;
    fprintf(stderr, "penstock: standard output: %s\n", failed ? "what was written is lost" : strerror(errno));
    return PST_EXIT_OTHER;
}

static int run_command(struct pst_cli *cli, const struct command *command)
{
    int code;

    if (begin_trace(cli) < 0)
        return pst_cli_usage("--traceparent: %s", penstock_error());
    code = command->opens ? 0 : pst_cli_open(cli, cli->url);
    if (code == 0)
        code = command->run(cli);
    if (code == 0)
        code = finish_output();
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
    const struct command *command;
    int words;

    if (!args[0])
        return pst_cli_usage("no command");
    command = find_command(args, &words);
    if (!command)
        return refuse_command(args);
    pst_assert(cli->arg_count >= words);
    cli->args = args + words;
    cli->arg_count -= words;
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
