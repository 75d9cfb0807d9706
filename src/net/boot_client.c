/*
 * boot_client.c: the client's end of the bootstrap socket. Blocking with a deadline until the session stands,
 * then driven by ticks. One thread. The node proves that it knows the secret before anything it says is used.
 */
#include "net/boot_dial.h"
#include "base/clock.h"
#include "base/hash.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
    LINK_MAGIC = 0x7e7e0020,
};

/* Descriptors that came in while the welcome was read. */
struct passed {
    int fds[PST_BOOT_ARENAS_MAX];
    uint32_t count;
    bool bad; /* more than there may be */
};

struct pst_boot_link {
    uint32_t magic;
    int fd;
    struct pst_bytes secret; /* our copy */
    bool spoke;              /* a valid frame has come: this is a penstock node */
    uint16_t version;        /* of the session; until the node's challenge, what is asked for */
    uint8_t transcript[BOOT_TRANSCRIPT_BYTES];
    uint64_t ping_sent_ns; /* of the last one */
    uint64_t waiting_ns;   /* of the oldest one without an answer; 0: none */
    uint32_t ping_left;    /* bytes of a ping that the socket did not take yet */
    uint32_t in_bytes;
    uint8_t in[BOOT_FRAME_SMALL_MAX];
};

static void passed_close(struct passed *passed)
{
    pst_assert(passed->count <= PST_BOOT_ARENAS_MAX);
    for (uint32_t i = 0; i < passed->count; i++)
        close(passed->fds[i]);
    passed->count = 0;
}

static void passed_take(struct passed *passed, struct msghdr *message)
{
    if (message->msg_flags & MSG_CTRUNC)
        passed->bad = true;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        size_t bytes = c->cmsg_len - CMSG_LEN(0);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < bytes / sizeof(int); i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (passed->count < PST_BOOT_ARENAS_MAX) {
                passed->fds[passed->count++] = fd;
            } else {
                close(fd);
                passed->bad = true;
            }
        }
    }
}

/* Reads what is there, up to @cap bytes, and descriptors with it. Return: bytes, 0 at the end of file,
 * -errno. */
static ssize_t read_some(int fd, void *buf, size_t cap, struct passed *passed)
{
    union {
        char bytes[CMSG_SPACE(PST_BOOT_ARENAS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = buf, .iov_len = cap};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    pst_assert(fd >= 0 && cap > 0);
    if (!passed)
        n = recv(fd, buf, cap, 0);
    else {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
        if (n >= 0)
            passed_take(passed, &message);
    }
    return n < 0 ? -errno : n;
}

static int read_all(int fd, uint8_t *buf, size_t bytes, struct passed *passed, uint64_t deadline_ns)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = read_some(fd, buf + done, bytes - done, passed);
        int r = 0;

        pst_assert(n <= (ssize_t)(bytes - done));
        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return -ECONNRESET;
        else if (n == -EAGAIN)
            r = boot_wait(fd, POLLIN, deadline_ns);
        else if (n != -EINTR)
            return (int)n;
        if (r < 0)
            return r;
    }
    return 0;
}

static int write_all(int fd, const uint8_t *buf, size_t bytes, uint64_t deadline_ns)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = send(fd, buf + done, bytes - done, MSG_NOSIGNAL);
        int r = 0;

        if (n > 0)
            done += (size_t)n;
        else if (errno == EAGAIN)
            r = boot_wait(fd, POLLOUT, deadline_ns);
        else if (errno != EINTR)
            return -errno;
        if (r < 0)
            return r;
    }
    return 0;
}

static int send_frame(struct pst_boot_link *link, enum boot_type type, const uint8_t *body, uint32_t bytes,
                      uint64_t deadline_ns)
{
    uint8_t frame[BOOT_FRAME_SMALL_MAX];
    int r;

    pst_assert(bytes <= sizeof(frame) - BOOT_HEAD_BYTES);
    pst_assert(link->magic == LINK_MAGIC && link->fd >= 0);
    boot_frame_head(frame, link->version, type, bytes);
    if (bytes > 0)
        memcpy(frame + BOOT_HEAD_BYTES, body, bytes);
    r = write_all(link->fd, frame, BOOT_HEAD_BYTES + bytes, deadline_ns);
    /* A node that refuses closes its end; its reason may still be there to be read. */
    return r == -EPIPE || r == -ECONNRESET ? 0 : r;
}

static const char *version_fault(uint16_t node_version)
{
    static _Thread_local char text[80];

    snprintf(text, sizeof(text), "the node speaks version %u, this client %d to %d", node_version,
             PST_BOOT_VERSION_OLDEST, PST_BOOT_VERSION);
    return text;
}

/* What a whole frame means where one of @type is due. The challenge settles the session's version. */
static int judge_frame(struct pst_boot_link *link, enum boot_type type, const struct boot_frame *frame,
                       const char **fault)
{
    bool settles = type == BOOT_CHALLENGE && frame->version >= PST_BOOT_VERSION_OLDEST &&
                   frame->version <= link->version;

    pst_assert(link->version >= PST_BOOT_VERSION_OLDEST && link->version <= PST_BOOT_VERSION);
    if (frame->type == BOOT_REFUSED) {
        int r = boot_refused_decode(frame, fault);

        if (r == -EPROTONOSUPPORT)
            *fault = version_fault(frame->version);
        return r;
    }
    if (frame->version != link->version && !settles) {
        *fault = version_fault(frame->version);
        return -EPROTONOSUPPORT;
    }
    link->version = frame->version;
    return frame->type == type ? 0 : -EPROTO;
}

/*
 * Reads one frame of type @type of any length up to @max into a buffer that the caller frees. Return: 0, or
 * what pst_boot_connect() returns, with *@fault set.
 */
static int read_frame(struct pst_boot_link *link, enum boot_type type, size_t max, struct passed *passed,
                      uint64_t deadline_ns, uint8_t **out, struct boot_frame *frame, const char **fault)
{
    uint8_t head[BOOT_HEAD_BYTES], *buf;
    int r = read_all(link->fd, head, sizeof(head), passed, deadline_ns);

    pst_assert(link->magic == LINK_MAGIC && out && frame);
    *fault = r == -ETIMEDOUT ? "no answer in time" : "the node closed the connection";
    if (r < 0)
        return r == -ECONNRESET && !link->spoke ? -EPROTO : r;
    *fault = "not a penstock node";
    r = boot_frame_parse(head, sizeof(head), max, frame);
    if (r < 0)
        return r;
    buf = malloc(BOOT_HEAD_BYTES + frame->bytes);
    if (!buf) {
        *fault = "out of memory";
        return -ENOMEM;
    }
    memcpy(buf, head, sizeof(head));
    r = read_all(link->fd, buf + sizeof(head), frame->bytes, passed, deadline_ns);
    frame->body = buf + sizeof(head);
    if (r < 0)
        *fault = r == -ETIMEDOUT ? "no answer in time" : "the node closed the connection";
    else
        r = judge_frame(link, type, frame, fault);
    if (r < 0) {
        free(buf);
        return r;
    }
    link->spoke = true;
    *out = buf;
    return 0;
}

static int greet(struct pst_boot_link *link, const struct pst_boot_client_options *options,
                 const char **fault)
{
    struct boot_hello hello = {.flags = 0};
    uint8_t body[BOOT_HELLO_BYTES], *at = link->transcript;
    pst_cleanup_free uint8_t *buf = NULL;
    struct boot_challenge challenge;
    struct boot_frame frame;
    int r;

    if (options->network_only)
        hello.flags |= BOOT_HELLO_NETWORK_ONLY;
    if (options->secret.len > 0)
        hello.flags |= BOOT_HELLO_HAS_SECRET;
    boot_identity_own(&hello.identity);
    pst_random(hello.nonce, sizeof(hello.nonce));
    boot_hello_encode(&hello, body);
    boot_frame_head(at, link->version, BOOT_HELLO, sizeof(body));
    memcpy(at + BOOT_HEAD_BYTES, body, sizeof(body));
    *fault = "no answer in time";
    r = send_frame(link, BOOT_HELLO, body, sizeof(body), options->deadline_ns);
    if (r < 0)
        return r;
    r = read_frame(link, BOOT_CHALLENGE, BOOT_FRAME_SMALL_MAX, NULL, options->deadline_ns, &buf, &frame,
                   fault);
    if (r < 0)
        return r;
    *fault = "not a penstock node";
    if (boot_challenge_decode(&frame, &challenge) < 0)
        return -EPROTO;
    memcpy(at + BOOT_HEAD_BYTES + BOOT_HELLO_BYTES, buf, BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES);
    if (!(challenge.flags & BOOT_CHALLENGE_SECRET) && options->secret.len > 0) {
        *fault = "the node does not know the secret";
        return -EACCES;
    }
    if (challenge.flags & BOOT_CHALLENGE_SECRET && options->secret.len == 0) {
        *fault = "the node wants a secret";
        return -EACCES;
    }
    return 0;
}

static int prove(struct pst_boot_link *link, struct pst_boot_welcome *welcome, struct passed *passed,
                 uint64_t deadline_ns, const char **fault)
{
    pst_cleanup_free uint8_t *buf = NULL;
    uint8_t mac[BOOT_MAC_BYTES];
    struct boot_frame frame;
    int r;

    *fault = "out of memory";
    r = boot_mac(link->secret, BOOT_LABEL_CLIENT, link->transcript, NULL, 0, mac);
    if (r < 0)
        return r;
    *fault = "no answer in time";
    r = send_frame(link, BOOT_PROOF, mac, sizeof(mac), deadline_ns);
    if (r < 0)
        return r;
    r = read_frame(link, BOOT_WELCOME, BOOT_FRAME_WELCOME_MAX, passed, deadline_ns, &buf, &frame, fault);
    if (r < 0)
        return r;
    *fault = "not a penstock node";
    if (frame.bytes < BOOT_MAC_BYTES)
        return -EPROTO;
    r = boot_mac_check(link->secret, BOOT_LABEL_SERVER, link->transcript, frame.body + BOOT_MAC_BYTES,
                       frame.bytes - BOOT_MAC_BYTES, frame.body);
    if (r < 0) {
        *fault = r == -EACCES ? "the node does not know the secret" : "out of memory";
        return r;
    }
    if (boot_welcome_decode(frame.body + BOOT_MAC_BYTES, frame.bytes - BOOT_MAC_BYTES, welcome) < 0)
        return -EPROTO;
    return passed->bad || passed->count != welcome->arena_count ? -EPROTO : 0;
}

int pst_boot_connect(const struct pst_boot_address *address, const struct pst_boot_client_options *options,
                     struct pst_boot_welcome *welcome, int arena_fds[PST_BOOT_ARENAS_MAX],
                     struct pst_boot_link **out, const char **fault)
{
    struct passed passed = {.count = 0};
    pst_cleanup_free struct pst_boot_welcome *came = calloc(1, sizeof(*came));
    struct pst_boot_link *link = calloc(1, sizeof(*link));
    int r;

    pst_assert(address && options && welcome && arena_fds && out && fault);
    pst_assert(options->secret.len <= PST_BOOT_SECRET_BYTES_MAX);
    *fault = "out of memory";
    if (link)
        *link = (struct pst_boot_link){.magic = LINK_MAGIC, .version = PST_BOOT_VERSION, .fd = -1};
    if (link && came)
        link->secret = (struct pst_bytes){boot_secret_copy(options->secret), options->secret.len};
    if (!link || !link->secret.data) {
        pst_boot_link_close(link);
        return -ENOMEM;
    }
    r = link->fd = boot_dial(address, options->deadline_ns, fault);
    if (r >= 0)
        r = greet(link, options, fault);
    if (r == 0)
        r = prove(link, came, &passed, options->deadline_ns, fault);
    if (r < 0) {
        passed_close(&passed);
        pst_boot_link_close(link);
        return r;
    }
    *welcome = *came;
    welcome->version = link->version;
    memcpy(arena_fds, passed.fds, passed.count * sizeof(int));
    *out = link;
    return 0;
}

int pst_boot_link_address(struct pst_boot_link *link, const void *address, size_t bytes, uint64_t deadline_ns,
                          const char **fault)
{
    uint8_t body[BOOT_MAC_BYTES + PST_NET_ADDRESS_BYTES_MAX];
    pst_cleanup_free uint8_t *buf = NULL;
    struct boot_frame frame;
    int r;

    pst_assert(link->magic == LINK_MAGIC && fault);
    pst_assert(bytes >= 1 && bytes <= PST_NET_ADDRESS_BYTES_MAX);
    memcpy(body + BOOT_MAC_BYTES, address, bytes);
    *fault = "out of memory";
    r = boot_mac(link->secret, BOOT_LABEL_ADDRESS, link->transcript, address, bytes, body);
    if (r < 0)
        return r;
    *fault = "the node closed the connection";
    r = send_frame(link, BOOT_ADDRESS, body, (uint32_t)(BOOT_MAC_BYTES + bytes), deadline_ns);
    if (r < 0)
        return r;
    return read_frame(link, BOOT_READY, BOOT_FRAME_SMALL_MAX, NULL, deadline_ns, &buf, &frame, fault);
}

/* Takes every whole frame out of the buffer: all that may come now are answers to pings. */
static int link_frames(struct pst_boot_link *link)
{
    uint32_t done = 0;

    pst_assert(link->in_bytes <= sizeof(link->in));
    for (;;) {
        struct boot_frame frame;
        int n = boot_frame_parse(link->in + done, link->in_bytes - done, sizeof(link->in), &frame);

        if (n < 0 || (n > 0 && (frame.type != BOOT_PONG || frame.version != link->version)))
            return -ECONNRESET;
        if (n == 0)
            break;
        link->waiting_ns = 0;
        done += (uint32_t)n;
    }
    pst_assert(done <= link->in_bytes);
    memmove(link->in, link->in + done, link->in_bytes - done);
    link->in_bytes -= done;
    return 0;
}

static int link_read(struct pst_boot_link *link)
{
    for (int round = 0; round < 16; round++) {
        ssize_t n = read_some(link->fd, link->in + link->in_bytes, sizeof(link->in) - link->in_bytes, NULL);
        int r;

        if (n == -EAGAIN)
            return 0;
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return -ECONNRESET;
        link->in_bytes += (uint32_t)n;
        pst_assert(link->in_bytes <= sizeof(link->in));
        r = link_frames(link);
        if (r < 0)
            return r;
    }
    return 0;
}

static int link_ping(struct pst_boot_link *link, uint64_t now_ns)
{
    uint8_t frame[BOOT_HEAD_BYTES];
    ssize_t n;

    if (link->ping_left == 0 && now_ns < link->ping_sent_ns + BOOT_PING_MS * 1000000ull)
        return 0;
    if (link->ping_left == 0) {
        link->ping_left = BOOT_HEAD_BYTES;
        link->ping_sent_ns = now_ns;
        if (link->waiting_ns == 0)
            link->waiting_ns = now_ns;
    }
    pst_assert(link->ping_left <= sizeof(frame));
    boot_frame_head(frame, link->version, BOOT_PING, 0);
    n = send(link->fd, frame + sizeof(frame) - link->ping_left, link->ping_left, MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -ECONNRESET;
    pst_assert((size_t)n <= link->ping_left);
    link->ping_left -= (uint32_t)n;
    return 0;
}

int pst_boot_link_tick(struct pst_boot_link *link, uint64_t now_ns)
{
    int r;

    pst_assert(link->magic == LINK_MAGIC);
    r = link_read(link);
    if (r == 0)
        r = link_ping(link, now_ns);
    if (r < 0)
        return r;
    /* Counted from an unanswered ping, not from what came last: the caller may have slept longer than that
     * itself. */
    if (link->waiting_ns > 0 && now_ns > link->waiting_ns + BOOT_SILENCE_MS * 1000000ull)
        return -ETIMEDOUT;
    return 0;
}

int pst_boot_link_fd(struct pst_boot_link *link)
{
    pst_assert(link->magic == LINK_MAGIC);
    return link->fd;
}

struct pst_boot_link *pst_boot_link_close(struct pst_boot_link *link)
{
    if (!link)
        return NULL;
    pst_assert(link->magic == LINK_MAGIC);
    if (link->fd >= 0) {
        shutdown(link->fd, SHUT_WR); /* the session ends even where a duplicate stays open */
        close(link->fd);
    }
    boot_secret_free(link->secret);
    link->magic = 0;
    free(link);
    return NULL;
}
