/* SPDX-License-Identifier: Apache-2.0 */
/* quorum.c: quorums by name and by id, each with its members in the order of joining. */
#include "files/group/quorum.h"

#include "base/list.h"
#include "files/group/pod_priv.h"

#include <stdio.h>

struct member {
    char ip[PST_IP_BYTES_MAX + 1];
    char pod_name[PST_NAME_BYTES_MAX + 1];
    bool is_putter, completed;
};

struct quorum {
    struct pst_list link;
    char id[PST_QUORUM_ID_CAP];
    char *name;
    uint64_t begun_ms, used_ms, timeout_ms;
    uint32_t world_size;
    char (*ips)[PST_IP_BYTES_MAX + 1]; /* that it waits for: empty once there */
    uint32_t ip_count, ips_left;
    struct member *members;
    uint32_t count, room;
    bool closed;
};

struct pst_quorums {
    struct pst_list all; /* the latest of a name in front */
    uint32_t count;
    uint64_t opened; /* ever */
};

struct pst_quorums *pst_quorums_open(void)
{
    struct pst_quorums *quorums = calloc(1, sizeof(*quorums));

    if (quorums)
        pst_list_init(&quorums->all);
    return quorums;
}

static void quorum_free(struct pst_quorums *quorums, struct quorum *quorum)
{
    pst_assert(quorums->count > 0);
    quorums->count--;
    pst_list_remove(&quorum->link);
    free(quorum->members);
    free(quorum->ips);
    free(quorum->name);
    free(quorum);
}

struct pst_quorums *pst_quorums_close(struct pst_quorums *quorums)
{
    if (!quorums)
        return NULL;
    pst_list_each_safe (it, &quorums->all)
        quorum_free(quorums, pst_list_entry(it, struct quorum, link));
    pst_assert(quorums->count == 0);
    free(quorums);
    return NULL;
}

/* ---- one quorum ---- */

static struct member *member_find(const struct quorum *quorum, const char *ip)
{
    for (uint32_t i = 0; i < quorum->count; i++)
        if (strcmp(quorum->members[i].ip, ip) == 0)
            return &quorum->members[i];
    return NULL;
}

static void is_there(struct quorum *quorum, const char *ip)
{
    for (uint32_t i = 0; i < quorum->ip_count; i++) {
        if (strcmp(quorum->ips[i], ip) != 0)
            continue;
        pst_assert(quorum->ips_left > 0);
        quorum->ips[i][0] = 0;
        quorum->ips_left--;
    }
}

/* Looks whether it closes by now. */
static void look(struct quorum *quorum, uint64_t now_ms)
{
    pst_assert(quorum->count <= PST_QUORUM_MEMBERS_MAX);
    if (quorum->closed)
        return;
    quorum->closed = (quorum->timeout_ms && now_ms >= quorum->begun_ms + quorum->timeout_ms) ||
                     (quorum->world_size && quorum->count >= quorum->world_size) ||
                     (quorum->ip_count && !quorum->ips_left);
}

static void tell(struct quorum *quorum, const char *ip, uint64_t now_ms, struct pst_quorum_info *out)
{
    bool completed = quorum->closed;

    quorum->used_ms = now_ms;
    *out = (struct pst_quorum_info){.id = quorum->id, .is_member = member_find(quorum, ip) != NULL};
    for (uint32_t i = 0; i < quorum->count; i++) {
        out->putters += quorum->members[i].is_putter;
        out->getters += !quorum->members[i].is_putter;
        completed &= quorum->members[i].completed;
    }
    pst_assert(out->putters + out->getters == quorum->count);
    pst_assert(!completed || quorum->closed);
    out->state = completed ? PST_QUORUM_COMPLETED : quorum->closed ? PST_QUORUM_READY : PST_QUORUM_WAITING;
}

static int add(struct quorum *quorum, const struct pst_quorum_member *member)
{
    if (quorum->count == PST_QUORUM_MEMBERS_MAX)
        return -ENOSPC;
    if (quorum->count == quorum->room) {
        uint32_t room = quorum->room ? 2 * quorum->room : 8;
        struct member *members = realloc(quorum->members, room * sizeof(*members));

        if (!members)
            return -ENOMEM;
        quorum->members = members;
        quorum->room = room;
    }
    pst_assert(quorum->count < quorum->room);
    pst_assert(!member_find(quorum, member->ip));
    quorum->members[quorum->count] = (struct member){.is_putter = member->is_putter};
    memcpy(quorum->members[quorum->count].ip, member->ip, strlen(member->ip) + 1);
    if (member->pod_name)
        memcpy(quorum->members[quorum->count].pod_name, member->pod_name, strlen(member->pod_name) + 1);
    quorum->count++;
    is_there(quorum, member->ip);
    pst_assert(quorum->count <= quorum->room);
    return 0;
}

/* ---- all of them ---- */

static int check_window(const struct pst_quorum_window *window)
{
    if (!window->timeout_ms && !window->world_size && !window->ip_count)
        return -EINVAL;
    if (window->timeout_ms > PST_QUORUM_TIMEOUT_MS_MAX || window->world_size > PST_QUORUM_MEMBERS_MAX ||
        window->ip_count > PST_QUORUM_MEMBERS_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < window->ip_count; i++)
        if (!pod_ip_fits(window->ips[i]))
            return -EINVAL;
    return 0;
}

/* Of quorums that have begun the one opened longest ago goes. Return: false there is none. */
static bool make_room(struct pst_quorums *quorums)
{
    struct quorum *oldest = NULL;

    pst_assert(quorums->count <= PST_QUORUMS_MAX);
    if (quorums->count < PST_QUORUMS_MAX)
        return true;
    pst_list_each (it, &quorums->all) {
        struct quorum *quorum = pst_list_entry(it, struct quorum, link);

        oldest = quorum->closed ? quorum : oldest;
    }
    if (oldest)
        quorum_free(quorums, oldest);
    return oldest != NULL;
}

static int quorum_new(struct pst_quorums *quorums, const char *name, const struct pst_quorum_window *window,
                      uint64_t now_ms, struct quorum **out)
{
    struct quorum *quorum;
    int r = check_window(window);

    if (r < 0)
        return r;
    if (!make_room(quorums))
        return -ENOSPC;
    pst_assert(quorums->count < PST_QUORUMS_MAX);
    quorum = calloc(1, sizeof(*quorum));
    if (!quorum)
        return -ENOMEM;
    pst_list_push_front(&quorums->all, &quorum->link);
    quorums->count++;
    quorum->name = strdup(name);
    quorum->ips = calloc(window->ip_count + 1, sizeof(*quorum->ips));
    if (!quorum->name || !quorum->ips) {
        quorum_free(quorums, quorum);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < window->ip_count; i++)
        memcpy(quorum->ips[i], window->ips[i], strlen(window->ips[i]) + 1);
    quorum->ip_count = quorum->ips_left = window->ip_count;
    quorum->world_size = window->world_size;
    quorum->timeout_ms = window->timeout_ms;
    quorum->begun_ms = now_ms;
    snprintf(quorum->id, sizeof(quorum->id), "broadcast-%llu", (unsigned long long)++quorums->opened);
    pst_assert(quorum->count == 0);
    *out = quorum;
    return 0;
}

/* The one of that name that a pod would join: the open one, or a closed one that it belongs to. */
static struct quorum *find_name(struct pst_quorums *quorums, const char *name, const char *ip,
                                uint64_t now_ms)
{
    pst_list_each (it, &quorums->all) {
        struct quorum *quorum = pst_list_entry(it, struct quorum, link);

        if (strcmp(quorum->name, name) != 0)
            continue;
        look(quorum, now_ms);
        if (!quorum->closed)
            return quorum;
        for (uint32_t i = 0; i < quorum->count; i++)
            if (strcmp(quorum->members[i].ip, ip) == 0 && !quorum->members[i].completed)
                return quorum;
    }
    return NULL;
}

static struct quorum *find_id(struct pst_quorums *quorums, const char *id, uint64_t now_ms)
{
    pst_list_each (it, &quorums->all) {
        struct quorum *quorum = pst_list_entry(it, struct quorum, link);

        if (strcmp(quorum->id, id) != 0)
            continue;
        look(quorum, now_ms);
        return quorum;
    }
    return NULL;
}

int pst_quorum_join(struct pst_quorums *quorums, const char *name, const struct pst_quorum_member *member,
                    const struct pst_quorum_window *window, uint64_t now_ms, struct pst_quorum_info *out)
{
    struct quorum *quorum;
    int r = 0;

    if (!pod_text_fits(name, PST_QUORUM_NAME_BYTES_MAX) || !pod_ip_fits(member->ip) ||
        !pod_name_fits(member->pod_name))
        return -EINVAL;
    quorum = find_name(quorums, name, member->ip, now_ms);
    if (!quorum)
        r = quorum_new(quorums, name, window, now_ms, &quorum);
    if (r == 0 && !member_find(quorum, member->ip))
        r = add(quorum, member);
    if (r < 0)
        return r;
    look(quorum, now_ms);
    tell(quorum, member->ip, now_ms, out);
    return 0;
}

int pst_quorum_status(struct pst_quorums *quorums, const char *id, const char *ip, uint64_t now_ms,
                      struct pst_quorum_info *out, pst_quorum_each *each, void *arg)
{
    struct quorum *quorum = find_id(quorums, id, now_ms);

    if (!quorum)
        return -ENOENT;
    tell(quorum, ip, now_ms, out);
    for (uint32_t i = 0; each && i < quorum->count; i++) {
        const struct member *member = &quorum->members[i];
        const struct pst_quorum_member told = {member->ip, member->pod_name, member->is_putter};

        each(arg, &told);
    }
    return 0;
}

int pst_quorum_complete(struct pst_quorums *quorums, const char *id, const char *ip, uint64_t now_ms,
                        struct pst_quorum_info *out)
{
    struct quorum *quorum = find_id(quorums, id, now_ms);
    struct member *member = quorum ? member_find(quorum, ip) : NULL;

    if (!member)
        return -ENOENT;
    if (!quorum->closed)
        return -EAGAIN;
    member->completed = true;
    tell(quorum, ip, now_ms, out);
    return 0;
}

void pst_quorums_forget(struct pst_quorums *quorums, uint64_t now_ms)
{
    pst_list_each_safe (it, &quorums->all) {
        struct quorum *quorum = pst_list_entry(it, struct quorum, link);

        if (now_ms > quorum->used_ms + PST_QUORUM_LIFE_MS)
            quorum_free(quorums, quorum);
    }
}
