/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames.c: what a frame asks for. A frame is an object of JSON with a member "command"; the table below says
 * which commands there are and from where they are taken. Every answer has "status", "ok" or "error", and the
 * latter an "error" for people.
 */
#include "agent/pod/frame_priv.h"

#include "base/utf8.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>

#define WAIT_S 60.0 /* of a `fs_broadcast_get_path` that does not say */

/* A member of the frame, or of an object in it, that must be a text. Return: NULL: it is not, and @fault says
 * so. */
static const char *text_of(struct frame *frame, const struct pst_json *object, const char *name)
{
    const char *text = pst_json_text(pst_json_get(object, name));

    pst_assert(*name);
    if (!text || !*text) {
        snprintf(frame->fault, sizeof(frame->fault), "'%s' must be a text", name);
        return NULL;
    }
    return text;
}

static const char *frame_text(struct frame *frame, const char *name)
{
    pst_assert(frame->asked);
    return text_of(frame, frame->asked, name);
}

int frame_key_of(struct frame *frame, const struct pst_json *object, const char *name, char key[PST_KEY_CAP])
{
    const char *text = text_of(frame, object, name);
    int bytes = text ? pst_key_normalise(pst_bytes_of(text), key) : -EINVAL;

    pst_assert(bytes < PST_KEY_CAP);
    if (text && bytes <= 0) {
        snprintf(frame->fault, sizeof(frame->fault), "'%s' cannot be a key", name);
        return -EINVAL;
    }
    return bytes < 0 ? bytes : 0;
}

static int frame_key(struct frame *frame, char key[PST_KEY_CAP])
{
    return frame_key_of(frame, frame->asked, "key", key);
}

const char *frame_group(struct frame *frame)
{
    const char *group = frame_text(frame, "group_id");

    if (group && (strlen(group) > PST_TREE_GROUP_BYTES_MAX || strchr(group, '\n'))) {
        snprintf(frame->fault, sizeof(frame->fault), "'group_id' cannot be a group's name");
        return NULL;
    }
    return group;
}

int frame_pid(struct frame *frame, pid_t *pid)
{
    const struct pst_json *said = pst_json_get(frame->asked, "pid");
    int64_t number = frame->caller->pid;

    if (said && !pst_json_is_null(said) &&
        (!pst_json_integer(said, &number) || number < 0 || number > INT32_MAX)) {
        snprintf(frame->fault, sizeof(frame->fault), "'pid' must be a process's number");
        return -EINVAL;
    }
    pst_assert(number >= 0 && number <= INT32_MAX);
    *pid = (pid_t)number;
    return 0;
}

static int frame_add_place(struct frame *frame, const struct pod_place *place)
{
    int r = pst_json_add_integer(frame->answer, "rsync_port", place->rsync_port);

    pst_assert(place->rsync_path[0]);
    return r < 0 ? r : pst_json_add_text(frame->answer, "rsync_path", place->rsync_path);
}

/* ---- commands: 0, or -errno with a text in the frame's fault or none ---- */

static int frame_ping(struct frame *frame)
{
    int r = pst_json_add_integer(frame->answer, "pid", getpid());

    pst_assert(frame->answer);
    return r < 0 ? r : pst_json_add_integer(frame->answer, "tcp_port", frame->pod->tcp_address.port);
}

static int frame_register(struct frame *frame)
{
    struct pod_place place;
    const char *path;
    char key[PST_KEY_CAP];
    bool named = false;
    pid_t pid;
    int r = pst_json_get(frame->asked, "ipc_handle") ? 1 : frame_key(frame, key);

    pst_assert(frame->caller->local);
    if (r == 1)
        return frame_register_tensor(frame);
    if (r == 0)
        r = frame_pid(frame, &pid);
    path = r == 0 ? frame_text(frame, "path") : NULL;
    if (!path)
        return r < 0 ? r : -EINVAL;
    pst_json_flag(pst_json_get(frame->asked, "named"), &named);
    r = offers_add(frame->pod, key, path, named, pid, &place, frame->fault);
    if (r == 0)
        r = pst_json_add_text(frame->answer, "key", key);
    return r < 0 ? r : frame_add_place(frame, &place);
}

static int frame_unregister(struct frame *frame)
{
    const struct pst_json *said = pst_json_get(frame->asked, "pid");
    char key[PST_KEY_CAP];
    pid_t pid = 0;
    int r = frame_key(frame, key), tensors;

    pst_assert(frame->caller->local);
    if (r == 0 && said)
        r = frame_pid(frame, &pid);
    if (r == 0)
        r = offers_remove(frame->pod, key, pid);
    tensors = r < 0 ? r : frame_unregister_tensor(frame, key, pid);
    r = tensors < 0 ? tensors : r > 0 || tensors > 0;
    if (r == -EPERM)
        snprintf(frame->fault, sizeof(frame->fault), "key '%.150s' is another process's", key);
    if (r < 0)
        return r;
    return r == 1 ? pst_json_add_text(frame->answer, "key", key)
                  : pst_json_add_text(frame->answer, "message", "Key not registered");
}

static int frame_list_keys(struct frame *frame)
{
    struct pst_json *keys = offers_list(frame->pod);

    pst_assert(frame->caller->local);
    if (keys)
        frame_list_tensors(frame, keys);
    return pst_json_add(frame->answer, "keys", keys);
}

static int frame_complete(struct frame *frame)
{
    const char *group = frame_group(frame), *path;
    char key[PST_KEY_CAP];
    int r = group ? frame_key(frame, key) : -EINVAL;

    pst_assert(frame->caller->local);
    path = r == 0 ? frame_text(frame, "local_path") : NULL;
    if (!path)
        return r < 0 ? r : -EINVAL;
    return finished_add(frame->pod, group, key, path, frame->fault);
}

int frame_timeout(struct frame *frame, double seconds, uint64_t *timeout_ms)
{
    const struct pst_json *said = pst_json_get(frame->asked, "timeout");

    if (said && !pst_json_is_null(said) &&
        (!pst_json_number(said, &seconds) || !isfinite(seconds) || seconds < 0)) {
        snprintf(frame->fault, sizeof(frame->fault), "'timeout' must be seconds");
        return -EINVAL;
    }
    *timeout_ms = seconds < POD_WAIT_MS_MAX / 1e3 ? (uint64_t)(seconds * 1e3) : POD_WAIT_MS_MAX;
    pst_assert(*timeout_ms <= POD_WAIT_MS_MAX);
    return 0;
}

static int frame_get_path(struct frame *frame)
{
    const char *group = frame_group(frame), *ip = getenv("POD_IP");
    char key[PST_KEY_CAP], path[PATH_MAX];
    struct pod_place place;
    uint64_t timeout_ms = 0;
    int r = group ? frame_key(frame, key) : -EINVAL;

    if (r == 0)
        r = frame_timeout(frame, WAIT_S, &timeout_ms);
    if (r < 0)
        return r;
    r = finished_wait(frame->pod, frame->caller, group, key, timeout_ms, &place, path);
    if (r == -ETIMEDOUT)
        snprintf(frame->fault, sizeof(frame->fault), "Timeout waiting for broadcast %.100s/%.100s", group,
                 key);
    else if (r == -ECANCELED)
        snprintf(frame->fault, sizeof(frame->fault), "this agent is stopping");
    if (r < 0)
        return r;
    r = pst_json_add_text(frame->answer, "local_path", path);
    if (r == 0)
        r = pst_json_add_text(frame->answer, "pod_ip", ip); /* null unless it is known */
    return r < 0 ? r : frame_add_place(frame, &place);
}

static int frame_broadcast(struct frame *frame)
{
    snprintf(frame->fault, sizeof(frame->fault),
             "this agent joins no group: join it at the store, then ask for execute_broadcast_group");
    return -EOPNOTSUPP;
}

/* ---- dispatch ---- */

enum { LOCAL = 1, REMOTE = 2 };

static const struct command {
    const char *name;
    int (*answer)(struct frame *frame);
    int from;
} commands[] = {
    {"ping", frame_ping, LOCAL | REMOTE},
    {"register", frame_register, LOCAL},
    {"unregister", frame_unregister, LOCAL},
    {"list_keys", frame_list_keys, LOCAL},
    {"fs_broadcast_complete", frame_complete, LOCAL},
    {"fs_broadcast_get_path", frame_get_path, LOCAL | REMOTE},
    {"put_tensor", frame_put_tensor, LOCAL},
    {"get_tensor", frame_get_tensor, LOCAL},
    {"put_tensors_broadcast", frame_broadcast, LOCAL},
    {"get_tensors_broadcast", frame_broadcast, LOCAL},
    {"execute_broadcast_group", frame_execute_group, LOCAL},
    {"serve_broadcast", frame_serve_broadcast, LOCAL},
    {"receive_broadcast", frame_receive_broadcast, LOCAL},
    {"request_broadcast", frame_broadcast, REMOTE},
    {"join_broadcast", frame_broadcast, REMOTE},
};

/* Whether the caller may ask at all: other pods must show the token, if there is one. */
static bool frame_is_allowed(const struct frame *frame)
{
    const struct pst_pod *pod = frame->pod;

    pst_assert(frame->pod->token_bytes <= sizeof(frame->pod->token));
    return frame->caller->local || pod->token_bytes == 0 ||
           pst_secret_is((struct pst_bytes){pod->token, pod->token_bytes},
                         pst_json_text(pst_json_get(frame->asked, "token")));
}

static int frame_run(struct frame *frame)
{
    const char *name = frame_text(frame, "command");

    pst_assert(frame->asked);
    pst_assert(frame->answer);
    if (!frame_is_allowed(frame)) {
        snprintf(frame->fault, sizeof(frame->fault), "no token, or a wrong one");
        return -EACCES;
    }
    if (!frame->caller->local)
        pst_acceptor_keep(frame->pod->acceptor, frame->caller->fd); /* it may wait as long as it asks for */
    for (size_t i = 0; name && i < pst_count_of(commands); i++) {
        if (strcmp(commands[i].name, name) == 0 && commands[i].from & (frame->caller->local ? LOCAL : REMOTE))
            return commands[i].answer(frame);
    }
    if (name)
        snprintf(frame->fault, sizeof(frame->fault), "Unknown %scommand: %.100s",
                 frame->caller->local ? "" : "remote ", name);
    return -EINVAL;
}

/* @why: a text in which a key or another text may have been cut in the middle of a character. */
static char *frame_refusal(char *why)
{
    struct pst_json *answer = pst_json_new_object();
    char *text = NULL;

    pst_utf8_repair(why);
    if (answer && pst_json_add_text(answer, "status", "error") == 0 &&
        pst_json_add_text(answer, "error", why) == 0)
        text = pst_json_print(answer);
    pst_json_free(answer);
    return text;
}

void fds_close(struct pod_fds *fds)
{
    pst_assert(fds->count <= POD_FDS_MAX);
    while (fds->count > 0)
        close(fds->fds[--fds->count]);
}

int fds_keep(struct pod_fds *fds, uint64_t memories[POD_FDS_MAX], int fd, uint64_t memory)
{
    int copy;

    pst_assert(fd >= 0);
    pst_assert(fds->count <= POD_FDS_MAX);
    for (uint32_t i = fds->count; i-- > 0;) {
        if (memories[i] == memory)
            return (int)i;
    }
    if (fds->count == POD_FDS_MAX)
        return -E2BIG;
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return -errno;
    memories[fds->count] = memory;
    fds->fds[fds->count] = copy;
    return (int)fds->count++;
}

char *frames_answer(struct pst_pod *pod, const struct pod_caller *caller, struct pst_bytes text,
                    const struct pod_fds *came, struct pod_fds *go)
{
    struct frame frame = {.pod = pod, .caller = caller, .came = came, .go = go};
    struct pst_json *asked = NULL;
    const char *fault = NULL;
    char *answer;
    /* This pod's own processes may say as much of their tensors as a server answers. */
    int r = (caller->local ? pst_json_parse_answer : pst_json_parse)(text, &asked, &fault);

    if (r == 0 && !pst_json_is_object(asked)) {
        r = -EINVAL;
        fault = "a frame must be an object";
    }
    if (r < 0) {
        pst_json_free(asked);
        snprintf(frame.fault, sizeof(frame.fault), "%s", fault);
        return frame_refusal(frame.fault);
    }
    frame.asked = asked;
    frame.answer = pst_json_new_object();
    r = frame.answer ? pst_json_add_text(frame.answer, "status", "ok") : -ENOMEM;
    if (r == 0)
        r = frame_run(&frame);
    if (r < 0)
        fds_close(go);
    if (r < 0 && !frame.fault[0])
        snprintf(frame.fault, sizeof(frame.fault), "%s", strerror(-r));
    answer = r < 0 ? frame_refusal(frame.fault) : pst_json_print(frame.answer);
    pst_json_free(frame.answer);
    pst_json_free(asked);
    return answer;
}
