/* SPDX-License-Identifier: Apache-2.0 */
/* identity.c: the file's lines have fixed lengths, so that each is written in its place. */
#include "member/identity.h"

#include "base/hex.h"
#include "base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

enum {
    DIGITS = 2 * PST_POOL_ID_BYTES,
    MEMORY_BYTES = sizeof("epoch 00000000000000000007 memory 89abcdef01234567\n") - 1,
    DISK_BYTES = sizeof("epoch 00000000000000000007 disk 89abcdef01234567\n") - 1,
    POOL_BYTES = sizeof("pool  memory 89abcdef01234567 disk 89abcdef01234567\n") - 1 + DIGITS,
};

static bool parse_id(const char *text, uint8_t id[PST_POOL_ID_BYTES])
{
    if (strspn(text, "0123456789abcdefABCDEF") < DIGITS || (text[DIGITS] && text[DIGITS] != '\n'))
        return false;
    for (int i = 0; i < PST_POOL_ID_BYTES; i++) {
        unsigned byte = 0;

        sscanf(text + 2 * i, "%2x", &byte);
        id[i] = (uint8_t)byte;
    }
    return true;
}

static int write_new(struct pst_identity *self)
{
    char text[DIGITS + 2];

    pst_assert(self->fd >= 0);
    pst_random(self->id, sizeof(self->id));
    pst_hex_print(self->id, PST_POOL_ID_BYTES, text);
    text[DIGITS] = '\n';
    return write(self->fd, text, DIGITS + 1) == DIGITS + 1 && fsync(self->fd) == 0 ? 0 : -errno;
}

/* The lines behind the id, as far as they are there. */
static void read_memberships(struct pst_identity *self, const char *text, size_t bytes)
{
    uint64_t epoch, name;

    pst_assert(self->epoch == 0);
    if (bytes >= MEMORY_BYTES && self->memory &&
        sscanf(text, "epoch %20" SCNu64 " memory %16" SCNx64, &epoch, &name) == 2 && name == self->memory) {
        self->epoch = epoch;
    } else if (bytes >= MEMORY_BYTES + DISK_BYTES && self->disk &&
               sscanf(text + MEMORY_BYTES, "epoch %20" SCNu64 " disk %16" SCNx64, &epoch, &name) == 2 &&
               name == self->disk) {
        self->epoch = epoch;
        self->durable = true;
    }
}

static int open_file(struct pst_identity *self, const char *path, char *fault)
{
    char text[DIGITS + 1 + MEMORY_BYTES + DISK_BYTES + 1] = "";
    ssize_t n;
    int r;

    pst_assert(self->fd < 0);
    r = pst_own_open(AT_FDCWD, path, O_RDWR | O_CREAT);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "node_id: %.150s: %.90s", path, pst_error_text());
        return r;
    }
    self->fd = r;
    n = read(self->fd, text, sizeof(text) - 1);
    r = n < 0 ? -errno : n == 0 ? write_new(self) : 0;
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "node_id: %.150s: %s", path, strerror(-r));
        return r;
    }
    if (n > 0 && !parse_id(text, self->id)) {
        snprintf(fault, PST_FAULT_BYTES, "node_id: %.150s does not hold %d hexadecimal digits", path, DIGITS);
        return -EINVAL;
    }
    if (n > DIGITS + 1)
        read_memberships(self, text + DIGITS + 1, (size_t)n - DIGITS - 1);
    return 0;
}

/* One that does not read as a whole says nothing: it is written when the node is a member for the first time.
 */
static int open_pool(struct pst_identity *self, const char *path, char *fault)
{
    char line[POOL_BYTES + 1] = "", name[DIGITS + 1];
    uint64_t memory, disk;
    int r;

    pst_assert(self->pool_fd < 0);
    r = pst_own_open(AT_FDCWD, path, O_RDWR | O_CREAT);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "%.150s: %.90s", path, pst_error_text());
        return r;
    }
    self->pool_fd = r;
    if (read(self->pool_fd, line, POOL_BYTES) < 0) {
        r = -errno;
        snprintf(fault, PST_FAULT_BYTES, "%.150s: %s", path, strerror(-r));
        return r;
    }
    if (sscanf(line, "pool %32[0-9a-f] memory %16" SCNx64 " disk %16" SCNx64, name, &memory, &disk) == 3 &&
        ((memory && memory == self->memory) || (disk && disk == self->disk)) &&
        pst_id_parse(name, &self->pool) < 0)
        self->pool = (struct pst_id){{0}};
    return 0;
}

static int init_id(struct pst_identity *self, const char *text, char *fault)
{
    if (text && (strlen(text) != DIGITS || !parse_id(text, self->id)))
        return open_file(self, text, fault);
    if (!text)
        pst_random(self->id, sizeof(self->id));
    return 0;
}

int pst_identity_init(struct pst_identity *self, const char *text, const char *beside, uint64_t memory,
                      uint64_t disk, char fault[PST_FAULT_BYTES])
{
    int r;

    *self = (struct pst_identity){.memory = memory, .disk = disk, .fd = -1, .pool_fd = -1};
    r = init_id(self, text, fault);
    return r == 0 && beside ? open_pool(self, beside, fault) : r;
}

void pst_identity_fini(struct pst_identity *self)
{
    pst_close_fd(&self->fd);
    pst_close_fd(&self->pool_fd);
}

bool pst_identity_outlives(const struct pst_identity *self)
{
    return self->fd >= 0 && (self->memory || self->disk);
}

static int write_at(int fd, const char *text, off_t at)
{
    ssize_t bytes = (ssize_t)strlen(text);

    if (fd < 0)
        return 0;
    errno = EIO;
    return pwrite(fd, text, (size_t)bytes, at) == bytes && fsync(fd) == 0 ? 0 : -errno;
}

int pst_identity_note(struct pst_identity *self, uint64_t epoch, const struct pst_id *pool)
{
    char lines[MEMORY_BYTES + DISK_BYTES + 1], line[POOL_BYTES + 1], name[PST_ID_TEXT_BYTES];
    int r;

    pst_assert(epoch > 0);
    self->epoch = epoch;
    self->durable = false;
    self->pool = *pool;
    pst_id_print(pool, name);
    snprintf(line, sizeof(line), "pool %s memory %016" PRIx64 " disk %016" PRIx64 "\n", name, self->memory,
             self->disk);
    pst_assert(strlen(line) == POOL_BYTES); /* it is written over the last one */
    r = write_at(self->pool_fd, line, 0);
    if (r < 0)
        return r;
    snprintf(lines, sizeof(lines),
             "epoch %020" PRIu64 " memory %016" PRIx64 "\nepoch %020" PRIu64 " disk %016" PRIx64 "\n", epoch,
             self->memory, epoch, self->disk);
    pst_assert(strlen(lines) == MEMORY_BYTES + DISK_BYTES);
    return write_at(self->fd, lines, DIGITS + 1);
}
