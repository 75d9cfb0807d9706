/* SPDX-License-Identifier: Apache-2.0 */
/* quorum.c: routes of broadcasts that begin once enough pods are there. Pods ask until theirs is ready. */
#include "agent/store/store_priv.h"

#include "base/clock.h"
#include "files/group/quorum.h"

#include <math.h>
#include <stdio.h>

static const char *word_of(const struct pst_quorum_info *info)
{
    if (!info->is_member)
        return info->state == PST_QUORUM_WAITING ? "waiting" : "missed";
    return info->state == PST_QUORUM_WAITING ? "waiting"
           : info->state == PST_QUORUM_READY ? "ready"
                                             : "completed";
}

static void add_info(struct pst_json *json, const struct pst_quorum_info *info)
{
    pst_json_add_text(json, "broadcast_id", info->id);
    pst_json_add_text(json, "status", word_of(info));
    pst_json_add_integer(json, "putters_count", info->putters);
    pst_json_add_integer(json, "getters_count", info->getters);
}

/* ---- joining ---- */

static int text_order(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* The strings of an array. Return: how many; -EINVAL one is no string, or more than @cap. */
static int take_texts(const struct pst_json *array, const char **texts, int cap)
{
    int count = 0;

    if (array && !pst_json_is_null(array) && !pst_json_is_array(array))
        return -EINVAL;
    for (const struct pst_json *text = pst_json_first(array); text; text = pst_json_next(text)) {
        if (count == cap || !pst_json_text(text))
            return -EINVAL;
        texts[count++] = pst_json_text(text);
    }
    pst_assert(count <= cap);
    return count;
}

/* In its namespace, and without a name of its own a quorum has that of its keys, in whatever order they come.
 */
static int name_of(struct call *call, const char *group, const char **texts,
                   char name[PST_QUORUM_NAME_BYTES_MAX + 1])
{
    int count = take_texts(pst_json_get(call->body, "keys"), texts, PST_QUORUM_MEMBERS_MAX);
    size_t bytes;

    if (count < 0 || (count == 0 && !*group))
        return -EINVAL;
    bytes = (size_t)snprintf(name, PST_QUORUM_NAME_BYTES_MAX + 1, "%s/%s", call->namespace, group);
    if (bytes > PST_QUORUM_NAME_BYTES_MAX)
        return -EINVAL;
    if (*group)
        return 0;
    qsort(texts, (size_t)count, sizeof(*texts), text_order);
    for (int i = 0; i < count; i++) {
        size_t more = strlen(texts[i]);

        if (bytes + more + 1 > PST_QUORUM_NAME_BYTES_MAX)
            return -EINVAL;
        memcpy(name + bytes, texts[i], more);
        bytes += more;
        name[bytes++] = '\n'; /* in no key */
        pst_assert(bytes <= PST_QUORUM_NAME_BYTES_MAX);
    }
    name[bytes] = 0;
    return 0;
}

static bool take_window(struct call *call, const char **texts, struct pst_quorum_window *window)
{
    const struct pst_json *timeout = pst_json_get(call->body, "timeout"),
                          *size = pst_json_get(call->body, "world_size");
    int count = take_texts(pst_json_get(call->body, "ips"), texts, PST_QUORUM_MEMBERS_MAX);
    int64_t world_size = 0;
    double seconds = 0;
    bool good = count >= 0;

    if (timeout && !pst_json_is_null(timeout))
        good &=
            pst_json_number(timeout, &seconds) && seconds > 0 && seconds <= PST_QUORUM_TIMEOUT_MS_MAX / 1000;
    if (size && !pst_json_is_null(size))
        good &= pst_json_integer(size, &world_size) && world_size > 0 && world_size <= PST_QUORUM_MEMBERS_MAX;
    if (!good) {
        reply_detail(call, 422, "timeout (s), world_size or ips cannot be");
        return false;
    }
    pst_assert(count >= 0);
    pst_assert(seconds >= 0);
    pst_assert(world_size >= 0);
    *window = (struct pst_quorum_window){.timeout_ms = (uint64_t)ceil(seconds * 1000),
                                         .world_size = (uint32_t)world_size,
                                         .ips = texts,
                                         .ip_count = (uint32_t)count};
    if (!window->timeout_ms && !world_size && !count)
        reply_detail(call, 422, "a broadcast needs at least one of timeout, world_size and ips");
    return window->timeout_ms || world_size || count;
}

static void join(struct call *call, const char **texts)
{
    struct pst_data_store *store = call->store;
    const char *group = body_text(call, "group_id"), *role = group ? body_text_needed(call, "role") : NULL;
    struct pst_quorum_member member = {.ip = role ? body_text_needed(call, "pod_ip") : NULL};
    char name[PST_QUORUM_NAME_BYTES_MAX + 1];
    struct pst_quorum_window window;
    struct pst_quorum_info info;
    struct pst_json *json;
    int r;

    if (!member.ip || !(member.pod_name = body_text(call, "pod_name")))
        return;
    member.is_putter = strcmp(role, "putter") == 0;
    if ((!member.is_putter && strcmp(role, "getter") != 0) || name_of(call, group, texts, name) < 0) {
        reply_detail(call, 422, "role must be 'putter' or 'getter', and group_id or keys a name");
        return;
    }
    if (!take_window(call, texts, &window))
        return;
    json = pst_json_new_object();
    pthread_mutex_lock(&store->quorums_lock);
    r = pst_quorum_join(store->quorums, name, &member, &window, pst_now_ms(), &info);
    if (r == 0)
        add_info(json, &info);
    pthread_mutex_unlock(&store->quorums_lock);
    if (r == 0) {
        reply_json(call, 200, json);
        return;
    }
    pst_json_free(json);
    if (r == -EINVAL)
        reply_detail(call, 422, "pod_ip, pod_name or ips cannot be");
    else
        reply_error(call, r);
}

void quorum_join(struct call *call)
{
    const char **texts = malloc(PST_QUORUM_MEMBERS_MAX * sizeof(*texts));

    if (texts)
        join(call, texts);
    else
        reply_error(call, -ENOMEM);
    free(texts);
}

/* ---- asking ---- */

/* Return: whether the id and pod_ip are there; if not, the call is answered. */
static bool take_question(struct call *call, struct pst_bytes raw_id, char id[PST_QUORUM_ID_CAP],
                          char ip[PST_IP_BYTES_MAX + 1])
{
    if (pst_web_query(call->request->query, "pod_ip", ip, PST_IP_BYTES_MAX + 1) <= 0)
        reply_detail(call, 422, "pod_ip is missing");
    else if (pst_web_decode(raw_id, false, id, PST_QUORUM_ID_CAP) <= 0)
        reply_detail(call, 404, "no such broadcast");
    else
        return true;
    return false;
}

struct members {
    struct pst_json *putters, *getters;
};

static void add_member(void *arg, const struct pst_quorum_member *member)
{
    struct members *members = arg;
    struct pst_json *json = pst_json_new_object();

    pst_json_add_text(json, "pod_ip", member->ip);
    pst_json_add_text(json, "pod_name", *member->pod_name ? member->pod_name : NULL);
    pst_json_add(member->is_putter ? members->putters : members->getters, NULL, json);
}

void quorum_status(struct call *call, struct pst_bytes raw_id)
{
    struct pst_data_store *store = call->store;
    char id[PST_QUORUM_ID_CAP], ip[PST_IP_BYTES_MAX + 1];
    struct pst_quorum_info info;
    struct members members;
    struct pst_json *json;
    int r;

    if (!take_question(call, raw_id, id, ip))
        return;
    members = (struct members){pst_json_new_array(), pst_json_new_array()};
    json = pst_json_new_object();
    pthread_mutex_lock(&store->quorums_lock);
    r = pst_quorum_status(store->quorums, id, ip, pst_now_ms(), &info, add_member, &members);
    if (r == 0)
        add_info(json, &info);
    pthread_mutex_unlock(&store->quorums_lock);
    pst_json_add(json, "putters", members.putters);
    pst_json_add(json, "getters", members.getters);
    if (r == 0) {
        reply_json(call, 200, json);
        return;
    }
    pst_json_free(json);
    reply_detail(call, 404, "no such broadcast");
}

void quorum_complete(struct call *call, struct pst_bytes raw_id)
{
    struct pst_data_store *store = call->store;
    char id[PST_QUORUM_ID_CAP], ip[PST_IP_BYTES_MAX + 1];
    struct pst_quorum_info info;
    struct pst_json *json;
    int r;

    if (!take_question(call, raw_id, id, ip))
        return;
    json = reply_success();
    pthread_mutex_lock(&store->quorums_lock);
    r = pst_quorum_complete(store->quorums, id, ip, pst_now_ms(), &info);
    if (r == 0)
        add_info(json, &info);
    pthread_mutex_unlock(&store->quorums_lock);
    if (r == 0) {
        reply_json(call, 200, json);
        return;
    }
    pst_json_free(json);
    if (r == -EAGAIN)
        reply_detail(call, 409, "the broadcast has not begun");
    else
        reply_detail(call, 404, "no such broadcast, or the pod is not in it");
}
