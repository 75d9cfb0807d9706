/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket.c: the agent's two sockets. A frame is its length, four bytes, the highest first, and then JSON; the
 * answer is the same. Over the unix socket descriptors come and go with the length, up to 253 with each byte.
 * A connection has one frame and one answer, and a thread of its own, since an answer may wait until a tree
 * has come. A client that stalls holds its thread for POD_STALL_MS, and the number of threads is bounded;
 * other pods' connections without a frame that is allowed make room for those that come.
 */
#include "agent/pod/casts_priv.h"
#include "agent/pod/rounds_priv.h"

#include "base/clock.h"
#include "base/ms.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
    REMOTE_FRAME_BYTES_MAX = 64 << 10, /* of another pod, which names a group and a key */
    DRAIN_MS = 2000,
    FDS_A_BYTE = 253, /* SCM_MAX_FD */
};

_Static_assert((int)POD_FDS_MAX == 4 * FDS_A_BYTE, "a length's four bytes carry all descriptors");

_Static_assert((int)REMOTE_FRAME_BYTES_MAX <= (int)POD_FRAME_BYTES_MAX, "others say no more than one's own");
_Static_assert((int)PST_TREE_GROUP_BYTES_MAX + (int)PST_KEY_BYTES_MAX < (int)REMOTE_FRAME_BYTES_MAX,
               "other pods can name a group and a key");

/* ---- frames as bytes ---- */

static int await(int fd, short events, uint64_t until_ns)
{
    struct pollfd ready = {.fd = fd, .events = events};
    uint64_t now_ns = pst_now_ns();
    int n = now_ns < until_ns ? poll(&ready, 1, (int)((until_ns - now_ns) / 1000000) + 1) : 0;

    return n > 0 ? 0 : n == 0 ? -ETIMEDOUT : errno == EINTR ? 0 : -errno;
}

/* Takes over what a message brought. Return: 0, -EMFILE some of it found no room. */
static int fds_take(struct msghdr *message, struct pod_fds *came)
{
    bool is_cut = (message->msg_flags & MSG_CTRUNC) != 0;

    for (struct cmsghdr *one = CMSG_FIRSTHDR(message); one; one = CMSG_NXTHDR(message, one)) {
        size_t count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(one) + i * sizeof(fd), sizeof(fd));
            if (came->count < POD_FDS_MAX)
                came->fds[came->count++] = fd;
            else
                close(fd), is_cut = true;
        }
    }
    return is_cut ? -EMFILE : 0;
}

/* Return: 0 with all @bytes; -ENODATA the client has ended before the first, -ECONNRESET within them,
 * -ETIMEDOUT, -errno. @came: takes the descriptors that come with them; NULL: the kernel closes those. */
static int frame_read(int fd, void *into, size_t bytes, uint64_t until_ns, struct pod_fds *came)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_A_BYTE * sizeof(int))];
    } control;
    size_t done = 0;

    while (done < bytes) {
        struct iovec part = {.iov_base = (char *)into + done, .iov_len = bytes - done};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = came ? control.bytes : NULL,
                                 .msg_controllen = came ? sizeof(control.bytes) : 0};
        ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        int r = n > 0             ? (came ? fds_take(&message, came) : 0)
                : n == 0          ? (done ? -ECONNRESET : -ENODATA)
                : errno == EAGAIN ? await(fd, POLLIN, until_ns)
                                  : -errno;

        if (r < 0)
            return r;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* One byte of a frame's length, and with it as many descriptors as a message takes. */
static int byte_write(int fd, const char *byte, const int *fds, uint32_t count, uint64_t until_ns)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(FDS_A_BYTE * sizeof(int))];
    } control = {.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec part = {.iov_base = (void *)byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int r = 0;

    pst_assert(count <= FDS_A_BYTE);
    if (count > 0) {
        control.head.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    }
    while (r == 0 && sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        r = errno == EAGAIN ? await(fd, POLLOUT, until_ns) : -errno;
    return r;
}

static int head_write(int fd, uint32_t head, const struct pod_fds *go, uint64_t until_ns)
{
    char bytes[sizeof(head)];
    uint32_t sent = 0;
    int r = 0;

    memcpy(bytes, &head, sizeof(head));
    for (size_t i = 0; r == 0 && i < sizeof(head); i++) {
        uint32_t count = (uint32_t)pst_min(go->count - sent, FDS_A_BYTE);

        r = byte_write(fd, bytes + i, go->fds + sent, count, until_ns);
        sent += count;
    }
    pst_assert(r < 0 || sent == go->count);
    return r;
}

static int frame_write(int fd, const void *from, size_t bytes, uint64_t until_ns)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = send(fd, (const char *)from + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        int r = n >= 0 ? 0 : errno == EAGAIN ? await(fd, POLLOUT, until_ns) : -errno;

        if (r < 0)
            return r;
        pst_assert(n <= (ssize_t)(bytes - done));
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Length and text at once: whoever is cut off in between would have a length and nothing behind it. */
static int answer_write(int fd, uint32_t head, const char *text, size_t bytes, uint64_t until_ns)
{
    struct iovec parts[] = {{.iov_base = &head, .iov_len = sizeof(head)},
                            {.iov_base = (void *)(uintptr_t)text, .iov_len = bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = pst_count_of(parts)};
    ssize_t n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    size_t sent = n > 0 ? (size_t)n : 0, of_head = pst_min(sent, sizeof(head));
    int r = n < 0 && errno != EAGAIN ? -errno : 0;

    pst_assert(sent <= sizeof(head) + bytes);
    if (r == 0)
        r = frame_write(fd, (const char *)&head + of_head, sizeof(head) - of_head, until_ns);
    return r < 0 ? r : frame_write(fd, text + (sent - of_head), bytes - (sent - of_head), until_ns);
}

static uint64_t stall_end_ns(void)
{
    return pst_deadline_ns(pst_now_ns(), POD_STALL_MS);
}

/* @text: NULL: there was no memory for the answer, and the client sees an end. */
static void connection_answer(const struct pod_caller *caller, const char *text, const struct pod_fds *go)
{
    uint64_t until_ns = stall_end_ns();
    uint32_t bytes = text ? (uint32_t)strlen(text) : 0, head = htonl(bytes);

    pst_assert(caller->fd >= 0);
    if (!text)
        return;
    if (!go || go->count == 0)
        answer_write(caller->fd, head, text, bytes, until_ns);
    else if (head_write(caller->fd, head, go, until_ns) == 0)
        frame_write(caller->fd, text, bytes, until_ns);
}

/*
 * Of a client that may still send: the end of the answer, then all that comes is dropped until the client
 * ends. A socket that closes with bytes unread would take the answer away.
 */
static void connection_drain(const struct pod_caller *caller)
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), DRAIN_MS);
    char dropped[4096];

    shutdown(caller->fd, SHUT_WR);
    while (frame_read(caller->fd, dropped, sizeof(dropped), until_ns, NULL) == 0)
        ;
}

static void connection_refuse(const struct pod_caller *caller, int error)
{
    static const struct {
        int error;
        const char *text;
    } refusals[] = {
        {-E2BIG, "{\"status\":\"error\",\"error\":\"the frame is too long\"}"},
        {-ETIMEDOUT, "{\"status\":\"error\",\"error\":\"the frame did not come in time\"}"},
        {-ECONNRESET, "{\"status\":\"error\",\"error\":\"the frame ended before its length\"}"},
        {-EMFILE, "{\"status\":\"error\",\"error\":\"the agent has no room for the frame's descriptors\"}"},
    };

    for (size_t i = 0; i < pst_count_of(refusals); i++) {
        if (refusals[i].error != error)
            continue;
        connection_answer(caller, refusals[i].text, NULL);
        connection_drain(caller);
    }
}

/* Return: 0 and the frame in *@text, which the caller frees in failure, too; -ENODATA the client has sent
 * nothing; -errno. */
static int connection_read(const struct pod_caller *caller, char **text, uint32_t *bytes,
                           struct pod_fds *came)
{
    uint32_t most = caller->local ? POD_FRAME_BYTES_MAX : REMOTE_FRAME_BYTES_MAX, head;
    uint64_t until_ns = stall_end_ns();
    int r = frame_read(caller->fd, &head, sizeof(head), until_ns, came);

    if (r < 0)
        return r;
    *bytes = ntohl(head);
    if (*bytes > most)
        return -E2BIG;
    *text = malloc(*bytes + 1);
    r = *text ? frame_read(caller->fd, *text, *bytes, until_ns, NULL) : -ENOMEM;
    return r == -ENODATA ? -ECONNRESET : r;
}

/* Whoever closes its side while it waits has gone: nothing else would tell. */
bool caller_is_gone(const struct pod_caller *caller)
{
    struct pollfd gone = {.fd = caller->fd, .events = POLLRDHUP};

    return poll(&gone, 1, 0) > 0;
}

/* ---- connections ---- */

static pid_t peer_pid(int fd)
{
    struct ucred peer = {.pid = 0};
    socklen_t bytes = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? peer.pid : 0;
}

/* Answers go at once; a client that waits and whose host is gone sends no end. */
static void set_up_tcp(int fd)
{
    int on = 1, idle_s = 30, interval_s = 10, count = 3;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

static void serve_connection(void *ctx, int fd, uint32_t listener)
{
    const struct pod_caller caller = {
        .fd = fd, .local = listener == POD_LOCAL, .pid = listener == POD_LOCAL ? peer_pid(fd) : 0};
    pst_cleanup_free char *text = NULL;
    pst_cleanup_free char *answer = NULL;
    struct pod_fds came = {.count = 0}, go = {.count = 0};
    uint32_t bytes = 0;
    int r;

    pst_assert(fd >= 0);
    pst_assert(listener == POD_LOCAL || listener == POD_REMOTE);
    if (!caller.local)
        set_up_tcp(fd);
    r = connection_read(&caller, &text, &bytes, &came);
    if (r < 0) {
        fds_close(&came);
        connection_refuse(&caller, r);
        return;
    }
    answer = frames_answer(ctx, &caller, (struct pst_bytes){text, bytes}, &came, &go);
    fds_close(&came);
    connection_answer(&caller, answer, &go);
    fds_close(&go);
}

static void refuse_connection(void *ctx, int fd, uint32_t listener)
{
    static const char busy[] = "{\"status\":\"error\",\"error\":\"the agent serves too many connections\"}";
    uint32_t head = htonl(sizeof(busy) - 1);

    (void)ctx;
    (void)listener;
    send(fd, &head, sizeof(head), MSG_DONTWAIT | MSG_NOSIGNAL);
    send(fd, busy, sizeof(busy) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- beginning and end ---- */

static int sockets_fail(int error, const char *option, const char *where, char fault[PST_FAULT_BYTES])
{
    pst_assert(error < 0);
    snprintf(fault, PST_FAULT_BYTES, "%s: %.150s: %s", option, where,
             error == -EADDRINUSE ? "another agent serves there" : strerror(-error));
    return error;
}

int sockets_open(struct pst_pod *pod, char fault[PST_FAULT_BYTES])
{
    static const struct pst_acceptor_ops ops = {.serve = serve_connection, .refuse = refuse_connection};
    struct pst_acceptor_listener listeners[] = {
        [POD_LOCAL] = {.connections_max = POD_LOCAL_MAX},
        [POD_REMOTE] = {.connections_max = POD_REMOTE_MAX, .greets = true}};
    int r;

    pst_assert(pod->unix_fd < 0);
    pst_assert(pod->tcp_fd < 0);
    pst_assert(!pod->acceptor);
    pod->unix_fd = pst_boot_listen_unix(&pod->unix_address, &pod->unix_inode);
    if (pod->unix_fd < 0)
        return sockets_fail(pod->unix_fd, "agent_socket", pod->unix_address.path, fault);
    pod->tcp_fd = pst_boot_listen_tcp(&pod->tcp_address);
    if (pod->tcp_fd < 0)
        return sockets_fail(pod->tcp_fd, "agent_listen", pod->settings->agent_listen, fault);
    listeners[POD_LOCAL].fd = pod->unix_fd;
    listeners[POD_REMOTE].fd = pod->tcp_fd;
    r = pst_acceptor_open(listeners, pst_count_of(listeners), &ops, pod, &pod->acceptor);
    return r < 0 ? sockets_fail(r, "agent", "a thread", fault) : 0;
}

void sockets_close(struct pst_pod *pod)
{
    bool listened = pod->unix_fd >= 0;

    pst_acceptor_stop(pod->acceptor);
    pst_close_fd(&pod->unix_fd);
    pst_close_fd(&pod->tcp_fd);
    if (listened)
        pst_boot_unlisten_unix(&pod->unix_address, pod->unix_inode);
    finished_stop(pod);
    receptions_stop(pod);
    rounds_stop(pod);
    pod->acceptor = pst_acceptor_close(pod->acceptor);
    pst_assert(!pod->acceptor);
}
