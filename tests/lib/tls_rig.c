/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/tls_rig.h"

#include "base/hash.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

static char folder[64];

static int run(const char *command)
{
    int status = system(command); /* NOLINT(cert-env33-c): the test's own words */

    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int tls_make_certificates(void **state)
{
    (void)state;
    assert_non_null(getenv("TEST_CERTIFICATES"));
    strcpy(folder, "/tmp/pst_tls_XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("FOLDER", folder, 1), 0);
    return run("\"$TEST_CERTIFICATES\" $FOLDER");
}

int tls_remove_certificates(void **state)
{
    (void)state;
    return run("rm -r $FOLDER");
}

const char *tls_path(const char *name, const char *ending)
{
    static char paths[64][128];
    static _Atomic unsigned turn; /* threads share the paths */
    char *path = paths[turn++ % pst_count_of(paths)];

    snprintf(path, sizeof(paths[0]), "%s/%s%s", folder, name, ending);
    return path;
}

void tls_copy(const char *from, const char *to, const char *ending)
{
    char command[256];

    snprintf(command, sizeof(command), "cp -p %s %s.new && mv %s.new %s", tls_path(from, ending),
             tls_path(to, ending), tls_path(to, ending), tls_path(to, ending));
    assert_int_equal(run(command), 0);
}

int tls_side_open(const struct tls_side *side, bool serves, struct pst_tls **out, char *fault)
{
    struct pst_tls_settings settings = {
        .name = side->name, .serves = serves, .connects = !serves, .certificate_optional = side->optional};

    if (side->certificate) {
        settings.certificate = tls_path(side->certificate, ".pem");
        settings.key = tls_path(side->certificate, ".key");
    }
    if (side->ca)
        settings.ca = tls_path(side->ca, ".pem");
    if (side->secret)
        settings.secret = pst_bytes_of(side->secret);
    return pst_tls_open(&settings, out, fault);
}

void tls_sockets(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
}

void tls_pair_open(struct tls_pair *pair, const struct tls_side *client, const struct tls_side *server,
                   const char *host, const int fds[2])
{
    char fault[PST_FAULT_BYTES];

    *pair = (struct tls_pair){.result = {-EAGAIN, -EAGAIN}, .text = {"", ""}};
    assert_int_equal(tls_side_open(client, false, &pair->tls[0], fault), 0);
    assert_int_equal(tls_side_open(server, true, &pair->tls[1], fault), 0);
    assert_int_equal(pst_tls_channel(pair->tls[0], fds[0], host, &pair->ends[0]), 0);
    assert_int_equal(pst_tls_channel(pair->tls[1], fds[1], NULL, &pair->ends[1]), 0);
}

void tls_pair_start(struct tls_pair *pair, void (*between)(void *ctx), void *ctx)
{
    for (int round = 0; round < 20000 && (pair->result[0] == -EAGAIN || pair->result[1] == -EAGAIN);
         round++) {
        int side = round % 2;

        if (pair->result[side] == -EAGAIN)
            pair->result[side] = stream_channel_start(pair->ends[side], &pair->text[side]);
        if (between)
            between(ctx);
    }
    /* A client has started before the server looks at its certificate. */
    if (pair->result[0] == 0 && pair->result[1] < 0) {
        char byte;
        struct iovec iov = {&byte, 1};

        pair->result[0] = (int)stream_channel_readv(pair->ends[0], &iov, 1);
    }
    for (int side = 0; side < 2; side++)
        pair->fault[side] = pst_tls_channel_fault(pair->ends[side], &pair->text[side]);
}

void tls_pair_close(struct tls_pair *pair)
{
    for (int side = 0; side < 2; side++) {
        stream_channel_close(pair->ends[side]);
        pst_tls_close(pair->tls[side]);
    }
}

void tls_pair_meet(struct tls_pair *pair, const struct tls_side *client, const struct tls_side *server,
                   const char *host)
{
    int fds[2];

    tls_sockets(fds);
    tls_pair_open(pair, client, server, host, fds);
    tls_pair_start(pair, NULL, NULL);
}

/* Pieces of uneven sizes, from those of a head to those of pages. */
static int cut_pieces(uint8_t *data, size_t bytes, uint64_t seed, struct iovec iov[STREAM_CHANNEL_IOV_MAX])
{
    static const size_t sizes[] = {1, 12, 100, 4000, 16384, 16385, 70000};
    int count = 0;

    while (bytes > 0 && count < 40) {
        size_t piece =
            pst_min(sizes[pst_hash64(&count, sizeof(count), seed + bytes) % pst_count_of(sizes)], bytes);

        iov[count++] = (struct iovec){data, piece};
        data += piece;
        bytes -= piece;
    }
    return count;
}

void tls_pair_talk(struct tls_pair *pair, int from, size_t bytes, uint64_t seed)
{
    uint8_t *sent = malloc(bytes), *come = calloc(1, bytes);
    struct iovec iov[STREAM_CHANNEL_IOV_MAX];
    size_t out = 0, in = 0;
    int idle = 0;

    assert_true(sent && come);
    pst_random(sent, bytes);
    while (in < bytes && idle < 1000) {
        ssize_t n = out < bytes ? stream_channel_writev(pair->ends[from], iov,
                                                        cut_pieces(sent + out, bytes - out, seed, iov))
                                : -EAGAIN;

        assert_true(n > 0 || n == -EAGAIN);
        assert_int_equal(n == -EAGAIN && out < bytes,
                         (stream_channel_wants(pair->ends[from]) & 4) != 0); /* EPOLLOUT */
        out += n > 0 ? (size_t)n : 0;
        idle++;
        n = stream_channel_readv(pair->ends[!from], iov, cut_pieces(come + in, bytes - in, ~seed, iov));
        assert_true(n > 0 || n == -EAGAIN);
        if (n > 0)
            idle = 0;
        in += n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(in, bytes);
    assert_int_equal(out, bytes);
    assert_memory_equal(sent, come, bytes);
    free(sent);
    free(come);
}
