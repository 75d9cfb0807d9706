/* identity.c: the file's lines have fixed lengths, so that each is written in its place. */
#include "master/identity.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

enum {
    DIGITS = 2 * PST_POOL_ID_BYTES,
    MEMORY_BYTES = sizeof("epoch 00000000000000000007 memory 89abcdef01234567\n") - 1,
    DISK_BYTES = sizeof("epoch 00000000000000000007 disk 89abcdef01234567\n") - 1,
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

    pst_random(self->id, sizeof(self->id));
    for (int i = 0; i < PST_POOL_ID_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", self->id[i]);
    text[DIGITS] = '\n';
    return write(self->fd, text, DIGITS + 1) == DIGITS + 1 && fsync(self->fd) == 0 ? 0 : -errno;
}

/* The lines behind the id, as far as they are there. */
static void read_memberships(struct pst_identity *self, const char *text, size_t bytes)
{
    uint64_t epoch, name;

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

    self->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    n = self->fd < 0 ? -1 : read(self->fd, text, sizeof(text) - 1);
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

int pst_identity_init(struct pst_identity *self, const char *text, uint64_t memory, uint64_t disk,
                      char fault[PST_FAULT_BYTES])
{
    *self = (struct pst_identity){.memory = memory, .disk = disk, .fd = -1};
    if (text && (strlen(text) != DIGITS || !parse_id(text, self->id)))
        return open_file(self, text, fault);
    if (!text)
        pst_random(self->id, sizeof(self->id));
    return 0;
}

void pst_identity_fini(struct pst_identity *self)
{
    pst_close_fd(&self->fd);
    self->fd = -1;
}

int pst_identity_note(struct pst_identity *self, uint64_t epoch)
{
    char lines[MEMORY_BYTES + DISK_BYTES + 1];

    self->epoch = epoch;
    self->durable = false;
    if (self->fd < 0)
        return 0;
    snprintf(lines, sizeof(lines),
             "epoch %020" PRIu64 " memory %016" PRIx64 "\nepoch %020" PRIu64 " disk %016" PRIx64 "\n", epoch,
             self->memory, epoch, self->disk);
    return pwrite(self->fd, lines, sizeof(lines) - 1, DIGITS + 1) == sizeof(lines) - 1 && fsync(self->fd) == 0
               ? 0
               : -errno;
}
