/* SPDX-License-Identifier: Apache-2.0 */
/* sockets.c: which route a pod's WebSocket belongs to, by its path: PREFIX GROUP ?namespace=. */
#include "agent/store/sockets_priv.h"

#include "base/utf8.h"

static const struct {
    const char *prefix;
    const struct socket_ops *ops;
} routes[] = {
    {"/ws/fs-broadcast/", &broadcast_sockets},
    {"/ws/broadcast/", &exchange_sockets},
    {"/ws/gpu-broadcast/", &exchange_sockets},
};

struct pst_json *socket_error(const char *text)
{
    struct pst_json *json = pst_json_new_object();

    pst_json_add_text(json, "event", "error");
    pst_json_add_text(json, "message", text);
    return json;
}

void socket_send(struct pod_socket *socket, const char *text)
{
    if (!socket->closed && (!text || pst_web_socket_send(socket->web, text) < 0))
        pst_web_socket_end(socket->web);
}

void socket_end(struct pod_socket *socket)
{
    if (!socket->closed)
        pst_web_socket_end(socket->web);
}

/* Return: its ops, and *@group behind the prefix; NULL: there is no such route. */
static const struct socket_ops *find(struct pst_bytes path, struct pst_bytes *group)
{
    for (size_t i = 0; i < pst_count_of(routes); i++) {
        size_t front = strlen(routes[i].prefix);

        if (!pst_bytes_begin(path, pst_bytes_of(routes[i].prefix)))
            continue;
        *group = (struct pst_bytes){(const char *)path.data + front, path.len - front};
        return routes[i].ops;
    }
    return NULL;
}

static int socket_open(void *ctx, struct pst_web_socket *web, struct pst_bytes path, struct pst_bytes query)
{
    struct pst_bytes group = {NULL, 0};
    const struct socket_ops *ops = find(path, &group);
    struct pod_socket *socket;
    int r;

    if (!ops)
        return -ENOENT;
    pst_assert(ops->bytes >= sizeof(*socket));
    socket = calloc(1, ops->bytes);
    if (!socket)
        return -ENOMEM;
    r = pst_web_decode(group, false, socket->group, sizeof(socket->group));
    if (r == 0 || (r > 0 && !pst_is_utf8((struct pst_bytes){socket->group, (size_t)r})))
        r = -EINVAL;
    if (r > 0)
        r = store_namespace(ctx, query, socket->namespace);
    if (r < 0) {
        free(socket);
        return r;
    }
    pst_assert(*socket->group && *socket->namespace);
    socket->ops = ops;
    socket->web = web;
    pst_web_socket_keep(web, socket);
    return 0;
}

static void socket_message(void *ctx, struct pst_web_socket *web, struct pst_bytes text)
{
    struct pod_socket *socket = pst_web_socket_kept(web);

    pst_assert(!socket->closed);
    pst_assert(socket->web == web);
    socket->ops->message(ctx, socket, text);
}

static void socket_close(void *ctx, struct pst_web_socket *web)
{
    struct pod_socket *socket = pst_web_socket_kept(web);

    pst_assert(!socket->closed);
    pst_assert(socket->web == web);
    socket->ops->close(ctx, socket);
}

const struct pst_web_ops store_web_ops = {
    .answer = store_answer,
    .socket_open = socket_open,
    .socket_message = socket_message,
    .socket_close = socket_close,
};
