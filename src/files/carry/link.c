/* SPDX-License-Identifier: Apache-2.0 */
/* link.c: frames in and out, none of them waited for longer than the peer may stall. */
#include "files/carry/link.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/ms.h"

#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#define DRAIN_NS 2000000000ull

enum {
    ALIVE_NS = 1000000000,
    ALIVE_STALLS_MAX = 30, /* for so long a peer is believed that only says that it is alive */
    FAULT_MS = 1000,
    LOOK_FRAMES_MAX = 64, /* that say that the peer is alive: it may send them without an end */
};

int link_open(struct link *link, int fd, uint32_t stall_ms, char fault[PST_FAULT_BYTES])
{
    pst_assert(fd >= 0);
    *link = (struct link){
        .fd = fd, .frame_bytes_max = LINK_GREETING_BYTES_MAX, .fault = fault, .alive_ns = pst_now_ns()};
    link_set_stall(link, stall_ms);
    link->until_ns = pst_deadline_ns(link->alive_ns, stall_ms);
    fault[0] = 0;
    link->in = malloc(LINK_FRAME_BYTES_MAX);
    link->out = malloc(LINK_HEAD_BYTES + LINK_FRAME_BYTES_MAX);
    return link->in && link->out ? 0 : link_fail(link, -ENOMEM, "out of memory");
}

void link_trust(struct link *link)
{
    link->frame_bytes_max = LINK_FRAME_BYTES_MAX;
    link->until_ns = UINT64_MAX;
}

void link_close(struct link *link)
{
    link->digester = pst_digester_close(link->digester);
    free(link->in);
    free(link->out);
    link->in = link->out = NULL;
}

/* Only names what has happened, if nothing has before. */
static int link_end(struct link *link, int error, const char *text)
{
    pst_assert(error < 0);
    if (link->error == 0) {
        link->error = error;
        snprintf(link->fault, PST_FAULT_BYTES, "%s", text);
        pst_printable(link->fault);
    }
    return link->error;
}

/* Reads what the peer still sends, until it has seen the fault: an end with bytes unread would take it back.
 */
static void link_drain(struct link *link)
{
    uint64_t until_ns = pst_now_ns() + DRAIN_NS;

    shutdown(link->fd, SHUT_WR);
    while (pst_now_ns() < until_ns && recv(link->fd, link->in, LINK_FRAME_BYTES_MAX, 0) > 0)
        ;
}

int link_fail(struct link *link, int error, const char *format, ...)
{
    char text[PST_FAULT_BYTES];
    va_list arguments;

    pst_assert(error < 0);
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (link->error)
        return link->error;
    if (link->in && link->out) {
        link->out_bytes = 0;
        link_put_number(link, (uint64_t)(int64_t)error, 4);
        link_put(link, text, strlen(text));
        link_set_stall(link, FAULT_MS); /* it is told to a peer that listens */
        if (link_send(link, LINK_ERROR) == 0)
            link_drain(link);
        link->error = 0; /* that the peer did not listen is the lesser fault */
        link->fault[0] = 0;
    }
    return link_end(link, error, text);
}

/* ---- out ---- */

size_t link_room(const struct link *link)
{
    pst_assert(link->out_bytes <= LINK_FRAME_BYTES_MAX);
    return LINK_FRAME_BYTES_MAX - link->out_bytes;
}

uint8_t *link_put_space(struct link *link, size_t bytes)
{
    uint8_t *space = link->out + LINK_HEAD_BYTES + link->out_bytes;

    pst_assert(bytes <= link_room(link));
    link->out_bytes += bytes;
    pst_assert(link->out_bytes <= LINK_FRAME_BYTES_MAX);
    return space;
}

void link_put(struct link *link, const void *data, size_t bytes)
{
    memcpy(link_put_space(link, bytes), data, bytes);
}

void link_put_number(struct link *link, uint64_t number, size_t bytes)
{
    pst_assert(bytes >= 1 && bytes <= 8);
    pst_write_number(link_put_space(link, bytes), number, bytes);
}

void link_put_text(struct link *link, const char *text)
{
    size_t bytes = strlen(text);

    pst_assert(bytes <= UINT16_MAX);
    link_put_number(link, bytes, 2);
    link_put(link, text, bytes);
}

/* The socket's own deadlines are those of the link. */
static int link_broken(struct link *link, int error)
{
    if (error == -EAGAIN)
        return link_end(link, -ETIMEDOUT, "the peer has stalled");
    return link_end(link, error,
                    error == -EPIPE || error == -ECONNRESET ? "the peer has ended the connection"
                                                            : strerror(-error));
}

void link_set_stall(struct link *link, uint32_t stall_ms)
{
    const struct timeval most = {.tv_sec = stall_ms / 1000, .tv_usec = stall_ms % 1000 * 1000};

    pst_assert(stall_ms > 0);
    link->stall_ms = stall_ms;
    setsockopt(link->fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
    setsockopt(link->fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}

/* How much the peer has said that is not read yet. */
static int link_unread(const struct link *link)
{
    int bytes = 0;

    return ioctl(link->fd, FIONREAD, &bytes) < 0 ? 0 : bytes;
}

/* The peer has taken nothing for a stall. It may be at work on what it was told before, and says so: whatever
 * it has said since *@unread counts, for as long as one is believed that only says that it is alive. */
static bool link_peer_works(const struct link *link, uint64_t since_ns, int *unread)
{
    uint64_t now_ns = pst_now_ns();
    int before = *unread;

    pst_assert(now_ns >= since_ns);
    *unread = link_unread(link);
    return *unread > before && now_ns < link->until_ns &&
           now_ns - since_ns <= pst_ns_of_ms(ALIVE_STALLS_MAX * (uint64_t)link->stall_ms);
}

/* Sends what was put, in a frame to which @more bytes belong. */
static int link_send_out(struct link *link, enum link_type type, size_t more)
{
    size_t bytes = LINK_HEAD_BYTES + link->out_bytes, done = 0;
    uint64_t since_ns = pst_now_ns();
    int unread = link_unread(link);

    pst_assert(type > 0 && type < LINK_TYPES);
    pst_assert(link->out_bytes + more <= LINK_FRAME_BYTES_MAX);
    if (link->error)
        return link->error;
    for (size_t i = 0; i < 4; i++)
        link->out[i] = (uint8_t)((link->out_bytes + more) >> 8 * i);
    link->out[4] = (uint8_t)type;
    link->out_bytes = 0;
    while (done < bytes) {
        ssize_t n = send(link->fd, link->out + done, bytes - done, MSG_NOSIGNAL | (more ? MSG_MORE : 0));

        if (n < 0 && errno != EINTR && (errno != EAGAIN || !link_peer_works(link, since_ns, &unread)))
            return link_broken(link, -errno);
        done += n > 0 ? (size_t)n : 0;
    }
    link->alive_ns = pst_now_ns();
    return 0;
}

int link_send(struct link *link, enum link_type type)
{
    return link_send_out(link, type, 0);
}

int link_send_head(struct link *link, enum link_type type, uint32_t bytes)
{
    pst_assert(link->out_bytes + bytes <= LINK_FRAME_BYTES_MAX);
    return link_send_out(link, type, bytes);
}

int link_send_file(struct link *link, int fd, uint64_t at, uint32_t bytes)
{
    off_t from = (off_t)at;

    pst_assert(fd >= 0);
    pst_assert(link->out_bytes == 0);
    while (bytes && link->error == 0) {
        ssize_t n = sendfile(link->fd, fd, &from, bytes);

        if (n == 0 || (n < 0 && errno != EINTR)) {
            link_broken(link, n == 0 ? -ESTALE : -errno);
            shutdown(link->fd, SHUT_RDWR);
        }
        bytes -= n > 0 ? (uint32_t)n : 0;
    }
    link->alive_ns = pst_now_ns();
    return link->error;
}

bool link_is_due(const struct link *link)
{
    return pst_now_ns() - link->alive_ns >= ALIVE_NS;
}

int link_alive(struct link *link)
{
    pst_assert(link->out_bytes == 0);
    return link_is_due(link) ? link_send(link, LINK_ALIVE) : link->error;
}

/* ---- in ---- */

static int link_read(struct link *link, void *into, size_t bytes)
{
    size_t done = 0;

    pst_assert(bytes <= LINK_FRAME_BYTES_MAX);
    while (done < bytes) {
        ssize_t n = recv(link->fd, (char *)into + done, bytes - done, link->eager ? 0 : MSG_WAITALL);

        if (pst_now_ns() >= link->until_ns)
            return link_broken(link, -EAGAIN);
        if (n == 0 || (n < 0 && errno != EINTR))
            return link_broken(link, n == 0 ? -ECONNRESET : -errno);
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* What the peer says of its fault. */
static int link_peer_fault(struct link *link, struct pst_reader *frame)
{
    int64_t error = (int32_t)pst_read_number(frame, 4);
    char text[PST_FAULT_BYTES];

    link->told = true;
    snprintf(text, sizeof(text), "%.*s", (int)pst_min(frame->left, sizeof(text) - 1),
             (const char *)frame->at);
    return link_end(link, error < 0 && error > -4096 ? (int)error : -EPROTO, text);
}

static int link_peer_alive(struct link *link)
{
    uint64_t now_ns = pst_now_ns();

    if (link->only_alive_ns == 0)
        link->only_alive_ns = now_ns;
    if (now_ns - link->only_alive_ns <= pst_ns_of_ms(ALIVE_STALLS_MAX * (uint64_t)link->stall_ms))
        return 0;
    return link_fail(link, -ETIMEDOUT, "the peer only says that it is alive");
}

int link_receive(struct link *link, enum link_type type, enum link_type *got, struct pst_reader *frame)
{
    uint8_t head[LINK_HEAD_BYTES];
    uint32_t bytes;

    do {
        if (link->error || link_read(link, head, sizeof(head)) < 0)
            return link->error;
        bytes = head[0] | head[1] << 8 | head[2] << 16 | (uint32_t)head[3] << 24;
        if (bytes > link->frame_bytes_max || head[4] == 0 || head[4] >= LINK_TYPES)
            return link_fail(link, -EPROTO, "the peer does not speak this protocol");
        if (link_read(link, link->in, bytes) < 0)
            return link->error;
        *frame = (struct pst_reader){.at = link->in, .left = bytes};
    } while (head[4] == LINK_ALIVE && link_peer_alive(link) == 0);
    if (link->error)
        return link->error;
    link->only_alive_ns = 0;
    if (head[4] == LINK_ERROR)
        return link_peer_fault(link, frame);
    if (type && head[4] != type)
        return link_fail(link, -EPROTO, "the peer sent a frame of type %u where %u comes", head[4], type);
    *got = (enum link_type)head[4];
    return 0;
}

void link_read_text(struct pst_reader *frame, char *out, size_t cap)
{
    size_t bytes = pst_read_number(frame, 2);
    const uint8_t *text = bytes < cap ? pst_read_bytes(frame, bytes) : NULL;

    if (!text || memchr(text, 0, bytes)) {
        frame->bad = true;
        bytes = 0;
    } else {
        memcpy(out, text, bytes);
    }
    pst_assert(bytes < cap);
    out[bytes] = 0;
}

void link_proof(struct pst_bytes token, const uint8_t challenge[LINK_CHALLENGE_BYTES], const char *name,
                uint8_t out[LINK_PROOF_BYTES])
{
    uint8_t text[LINK_CHALLENGE_BYTES + 8192 + 1];
    size_t name_bytes = strlen(name), written = 0;

    pst_assert(token.len > 0);
    pst_assert(name_bytes < sizeof(text) - LINK_CHALLENGE_BYTES);
    memcpy(text, challenge, LINK_CHALLENGE_BYTES);
    memcpy(text + LINK_CHALLENGE_BYTES, name, name_bytes);
    pst_assert(EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, token.data, token.len, text,
                         LINK_CHALLENGE_BYTES + name_bytes, out, LINK_PROOF_BYTES, &written));
    pst_assert(written == LINK_PROOF_BYTES);
}

bool link_proofs_equal(const uint8_t a[LINK_PROOF_BYTES], const uint8_t b[LINK_PROOF_BYTES])
{
    uint8_t differ = 0;

    for (size_t i = 0; i < LINK_PROOF_BYTES; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

int link_take_key(struct link *link, const uint8_t challenge[LINK_CHALLENGE_BYTES])
{
    pst_assert(!link->digester);
    link->digester = pst_digester_open(challenge + LINK_CHALLENGE_BYTES - PST_DIGEST_KEY_BYTES);
    return link->digester ? 0 : link_fail(link, -ENOMEM, "out of memory");
}

int link_look(struct link *link)
{
    static const uint8_t alive[LINK_HEAD_BYTES] = {[4] = LINK_ALIVE}; /* and no bytes behind it */
    uint8_t head[LINK_HEAD_BYTES];
    struct pst_reader frame;
    enum link_type type;

    for (int i = 0; i < LOOK_FRAMES_MAX && link->error == 0; i++) {
        if (recv(link->fd, head, sizeof(head), MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof(head))
            break;
        if (head[4] == LINK_ERROR)
            return link_receive(link, 0, &type, &frame);
        if (memcmp(head, alive, sizeof(head)) != 0)
            break;
        link_read(link, head, sizeof(head));
    }
    return link->error;
}
