/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c: penstock data watch: how the members of a broadcast stand, until none of them fetches any more. */
#include "cli/data/data.h"
#include "cli/data/report.h"

#include "base/error.h"
#include "base/percent.h"

#include <inttypes.h>

enum { PAUSE_US = 500000, GROUP_BYTES_MAX = 1024 };

struct watch {
    struct pst_data data;
    char route[3 * GROUP_BYTES_MAX + 40];
    const struct pst_json *last; /* what was told before; NULL: nothing yet */
};

/* What an answer says in all. */
struct tally {
    size_t members, fetching;
};

static int64_t number_of(const struct pst_json *object, const char *name)
{
    int64_t number = 0;

    pst_json_integer(pst_json_get(object, name), &number);
    return number;
}

static const char *text_of(const struct pst_json *object, const char *name)
{
    const char *text = pst_json_text(pst_json_get(object, name));

    return text ? text : "";
}

/* The member of the same broadcast and rank as it was told before; NULL: it was not. */
static const struct pst_json *member_before(const struct pst_json *last, const char *key, int64_t rank)
{
    const struct pst_json *at = pst_json_first(pst_json_get(last, "broadcasts")), *member;

    for (; at && strcmp(text_of(at, "key"), key) != 0; at = pst_json_next(at))
        ;
    member = pst_json_first(pst_json_get(at, "members"));
    while (member && number_of(member, "rank") != rank)
        member = pst_json_next(member);
    return member;
}

static bool stands_as(const struct pst_json *member, const struct pst_json *before)
{
    return before && strcmp(text_of(member, "state"), text_of(before, "state")) == 0 &&
           number_of(member, "bytes") == number_of(before, "bytes") &&
           number_of(member, "parent_rank") == number_of(before, "parent_rank");
}

static void print_member(const struct pst_json *broadcast, const struct pst_json *member)
{
    int64_t bytes = number_of(member, "bytes"), all = number_of(broadcast, "bytes");
    int percent = all > 0 ? (int)((double)bytes * 100 / (double)all) : 100;
    char size[PST_SIZE_TEXT_BYTES], address[80], line[PST_KEY_CAP + 200];

    snprintf(address, sizeof(address), "%.64s:%" PRId64, text_of(member, "ip"), number_of(member, "port"));
    snprintf(line, sizeof(line),
             "%-24s %5" PRId64 "  %-22s  from %5" PRId64 "  %-11s  %3d %%  %10s  silent %" PRId64 " ms",
             text_of(broadcast, "key"), number_of(member, "rank"), address, number_of(member, "parent_rank"),
             text_of(member, "state"), percent, pst_size_text((uint64_t)bytes, size),
             number_of(member, "silent_ms"));
    pst_printable(line);
    puts(line);
}

/* Prints the members that stand otherwise than before. Return: whether there were any. */
static bool tell_changes(const struct watch *watch, const struct pst_json *now, struct tally *tally)
{
    const struct pst_json *broadcast = pst_json_first(pst_json_get(now, "broadcasts")), *member;
    bool changed = false;

    *tally = (struct tally){0};
    for (; broadcast; broadcast = pst_json_next(broadcast)) {
        const char *key = text_of(broadcast, "key");

        for (member = pst_json_first(pst_json_get(broadcast, "members")); member;
             member = pst_json_next(member)) {
            tally->members++;
            tally->fetching += strcmp(text_of(member, "state"), "fetching") == 0;
            if (stands_as(member, member_before(watch->last, key, number_of(member, "rank"))))
                continue;
            changed = true;
            if (!watch->data.cli->json)
                print_member(broadcast, member);
        }
    }
    return changed;
}

/* One look. Return: 0 it is to go on, 1 it has ended and *@code is set. */
static int look(struct watch *watch, struct pst_json **now, int *code)
{
    struct tally tally;
    bool changed;

    *code = pst_data_call(&watch->data, "GET", NULL, watch->route, "", NULL, now);
    if (*code)
        return 1;
    changed = tell_changes(watch, *now, &tally);
    if (tally.members == 0 && !watch->last) {
        pst_report_line("%s: no broadcast has this group", watch->data.cli->args[0]);
        *code = PST_EXIT_NOT_FOUND;
        return 1;
    }
    if (changed && watch->data.cli->json) {
        pst_cleanup_free char *line = pst_json_print(*now);

        puts(line ? line : "{}");
    }
    if (fflush(stdout) != 0)
        return 1; /* nobody reads it any more */
    return tally.fetching == 0;
}

int pst_cmd_data_watch(struct pst_cli *cli)
{
    static const char front[] = "/api/v1/fs/broadcast/groups/";
    struct watch watch = {.last = NULL};
    struct pst_json *now = NULL, *last = NULL;
    size_t bytes = sizeof(front) - 1;
    int code = pst_data_open(cli, &watch.data);

    memcpy(watch.route, front, bytes);
    if (code == 0 && (!*cli->args[0] || strlen(cli->args[0]) > GROUP_BYTES_MAX ||
                      pst_percent_encode(pst_bytes_of(cli->args[0]), watch.route + bytes,
                                         sizeof(watch.route) - bytes) < 0))
        code = pst_cli_usage("group: must have 1 to %d bytes", GROUP_BYTES_MAX);
    while (code == 0 && look(&watch, &now, &code) == 0) {
        pst_json_free(last);
        watch.last = last = now;
        now = NULL;
        usleep(PAUSE_US);
    }
    pst_json_free(now);
    pst_json_free(last);
    pst_data_close(&watch.data);
    return code;
}
