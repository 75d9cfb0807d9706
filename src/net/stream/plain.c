/* SPDX-License-Identifier: Apache-2.0 */
/* plain.c: the channel that adds nothing to its socket. */
#include "net/stream/channel.h"

#include <sys/socket.h>

static int plain_start(struct stream_channel *channel, const char **fault)
{
    (void)channel;
    (void)fault;
    return 0;
}

static ssize_t plain_readv(struct stream_channel *channel, struct iovec *iov, int iov_count)
{
    ssize_t n;

    do
        n = readv(channel->fd, iov, iov_count);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static ssize_t plain_writev(struct stream_channel *channel, const struct iovec *iov, int iov_count)
{
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)iov,
                                   .msg_iovlen = (size_t)iov_count};
    ssize_t n;

    do
        n = sendmsg(channel->fd, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static bool plain_buffered(const struct stream_channel *channel)
{
    (void)channel;
    return false;
}

static uint32_t plain_wants(const struct stream_channel *channel)
{
    (void)channel;
    return 0;
}

static void plain_close(struct stream_channel *channel)
{
    close(channel->fd);
    channel->magic = 0;
    free(channel);
}

static const struct stream_channel_ops plain = {
    .name = "plain",
    .start = plain_start,
    .readv = plain_readv,
    .writev = plain_writev,
    .buffered = plain_buffered,
    .wants = plain_wants,
    .close = plain_close,
};

bool stream_channel_is_plain(const struct stream_channel *channel)
{
    return channel->ops == &plain;
}

int stream_channel_plain(int fd, struct stream_channel **out)
{
    struct stream_channel *channel = malloc(sizeof(*channel));

    pst_assert(fd >= 0);
    pst_assert(out);
    if (!channel)
        return -ENOMEM;
    *channel = (struct stream_channel){.magic = STREAM_CHANNEL_MAGIC, .fd = fd, .ops = &plain};
    *out = channel;
    return 0;
}
