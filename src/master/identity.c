/* identity.c: the file's two lines have fixed lengths, so that each is written in its place. */
#include "master/identity.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

enum {
    DIGITS = 2 * PST_POOL_ID_BYTES,
    LINE_BYTES = sizeof("epoch 00000000000000000007 memory 89abcdef01234567\n") - 1,
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

static int open_file(struct pst_identity *self, const char *path, char *fault)
{
    char text[DIGITS + 1 + LINE_BYTES + 1] = "";
    uint64_t epoch, memory;
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
    if (n == DIGITS + 1 + LINE_BYTES && self->memory &&
        sscanf(text + DIGITS + 1, "epoch %20" SCNu64 " memory %16" SCNx64, &epoch, &memory) == 2 &&
        memory == self->memory)
        self->epoch = epoch;
    return 0;
}

int pst_identity_init(struct pst_identity *self, const char *text, uint64_t memory,
                      char fault[PST_FAULT_BYTES])
{
    *self = (struct pst_identity){.memory = memory, .fd = -1};
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
    char line[LINE_BYTES + 1];

    self->epoch = epoch;
    if (self->fd < 0)
        return 0;
    snprintf(line, sizeof(line), "epoch %020" PRIu64 " memory %016" PRIx64 "\n", epoch, self->memory);
    return pwrite(self->fd, line, LINE_BYTES, DIGITS + 1) == LINE_BYTES && fsync(self->fd) == 0 ? 0 : -errno;
}
