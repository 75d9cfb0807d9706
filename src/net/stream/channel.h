/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel.h: a stream of bytes over a connected socket that does not block; plain, or wrapped by what fills
 * the table. A channel owns its socket. One thread at a time, and no call waits. Of what these calls are
 * given, nothing is kept: what a write did not take is offered again, the same bytes first.
 */
#ifndef STREAM_CHANNEL_H
#define STREAM_CHANNEL_H

#include "base/base.h"

#include <sys/uio.h>

enum {
    STREAM_CHANNEL_MAGIC = 0x7e7e0040,
    STREAM_CHANNEL_IOV_MAX = 1024, /* pieces of one read or write */
};

struct stream_channel;

/* What a kind of channel does. Contracts: the function of the same name below. */
struct stream_channel_ops {
    const char *name; /* for people: "plain" */
    int (*start)(struct stream_channel *channel, const char **fault);
    ssize_t (*readv)(struct stream_channel *channel, struct iovec *iov, int iov_count);
    ssize_t (*writev)(struct stream_channel *channel, const struct iovec *iov, int iov_count);
    bool (*buffered)(const struct stream_channel *channel);
    uint32_t (*wants)(const struct stream_channel *channel);
    void (*close)(struct stream_channel *channel); /* frees it, and closes its socket */
};

/* The head of every kind's object. */
struct stream_channel {
    uint32_t magic;
    int fd;
    const struct stream_channel_ops *ops;
};

/* A channel that passes the bytes as they are. Owns @fd if it succeeds. Return: 0, -ENOMEM. */
int stream_channel_plain(int fd, struct stream_channel **out);

bool stream_channel_is_plain(const struct stream_channel *channel);

/*
 * Takes the channel's own handshake further; nothing is read or written before it is done. Return: 0 it is
 * done, -EAGAIN not yet: stream_channel_wants() says for what; -errno it failed, with *@fault naming why,
 * valid until this thread's next call.
 */
static inline int stream_channel_start(struct stream_channel *channel, const char **fault)
{
    pst_assert(channel->magic == STREAM_CHANNEL_MAGIC);
    pst_assert(fault);
    return channel->ops->start(channel, fault);
}

/* Reads into the pieces in their order, whose iovecs it may change. Return: bytes, 0 at the end of the
 * stream, -EAGAIN, -errno. */
static inline ssize_t stream_channel_readv(struct stream_channel *channel, struct iovec *iov, int iov_count)
{
    pst_assert(channel->magic == STREAM_CHANNEL_MAGIC);
    pst_assert(iov);
    pst_assert(iov_count > 0 && iov_count <= STREAM_CHANNEL_IOV_MAX);
    return channel->ops->readv(channel, iov, iov_count);
}

/* Writes from the pieces in their order. Return: bytes taken, -EAGAIN, -errno. */
static inline ssize_t stream_channel_writev(struct stream_channel *channel, const struct iovec *iov,
                                            int iov_count)
{
    pst_assert(channel->magic == STREAM_CHANNEL_MAGIC);
    pst_assert(iov);
    pst_assert(iov_count > 0 && iov_count <= STREAM_CHANNEL_IOV_MAX);
    return channel->ops->writev(channel, iov, iov_count);
}

/* Whether bytes can be read though the socket itself may have none. */
static inline bool stream_channel_buffered(const struct stream_channel *channel)
{
    pst_assert(channel->magic == STREAM_CHANNEL_MAGIC);
    return channel->ops->buffered(channel);
}

/*
 * What epoll has to watch, EPOLLIN or EPOLLOUT, before the call that answered -EAGAIN is worth repeating:
 * a read may wait for room to write, and a write for something to read. The caller adds what it wants itself.
 */
static inline uint32_t stream_channel_wants(const struct stream_channel *channel)
{
    pst_assert(channel->magic == STREAM_CHANNEL_MAGIC);
    return channel->ops->wants(channel);
}

static inline int stream_channel_fd(const struct stream_channel *channel)
{
    pst_assert(channel->magic == STREAM_CHANNEL_MAGIC);
    return channel->fd;
}

/* Returns NULL, and takes it. */
static inline struct stream_channel *stream_channel_close(struct stream_channel *channel)
{
    if (!channel)
        return NULL;
    pst_assert(channel->magic == STREAM_CHANNEL_MAGIC);
    channel->ops->close(channel);
    return NULL;
}

#endif
