/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.c: the folders of a log: whose they are, who has them, and their segments. Nothing is written
 * before all of them are known to be ours.
 */
#include "log/log_priv.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/limits.h"
#include "base/own.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define MARKER     "penstock"
#define MARKER_NEW "penstock.new"
#define LOCK       "lock"

enum { MARKER_BYTES_MAX = 1024, NAME_BYTES_MAX = 32 };

static int refuse_errno(const struct pst_log_folder *f, const char *what)
{
    int error = errno;

    return pst_fail(-error, "folder %s: %s: %s", f->path, what, strerror(error));
}

/* ---- the marker: text, so that people may read it ---- */

struct marker {
    unsigned version;
    char store[33];
    uint64_t seed, segment_bytes, epoch, generation;
    uint32_t folder, folder_count;
};

static uint64_t marker_check(const char *text, int bytes)
{
    return pst_hash64(text, (size_t)bytes, 0);
}

/* What is behind the numbers: a checksum of all before it, which earlier programs did not write, nor mind. */
static bool marker_ends_well(const char *text, int bytes)
{
    char end[64];

    snprintf(end, sizeof(end), "check %016" PRIx64 "\nend\n", marker_check(text, bytes));
    return bytes > 0 && (strcmp(text + bytes, end) == 0 || strcmp(text + bytes, "end\n") == 0);
}

static int marker_parse(const struct pst_log_folder *f, const char *text, struct marker *m)
{
    int bytes = 0;

    if (sscanf(text, "penstock ssd %u\n", &m->version) != 1)
        return pst_fail(-EEXIST, "folder %s: its file %s is not one of penstock's", f->path, MARKER);
    if (m->version != PST_LOG_VERSION)
        return pst_fail(-EPROTONOSUPPORT, "folder %s has format %u, this penstock reads format %d", f->path,
                        m->version, PST_LOG_VERSION);
    if (sscanf(text,
               "penstock ssd %u\nstore %32[0-9a-f]\nseed %" SCNx64 "\nfolder %" SCNu32 " of %" SCNu32
               "\nsegment_bytes %" SCNu64 "\nepoch %" SCNu64 "\ngeneration %" SCNu64 "\n%n",
               &m->version, m->store, &m->seed, &m->folder, &m->folder_count, &m->segment_bytes, &m->epoch,
               &m->generation, &bytes) != 8 ||
        strlen(m->store) != 32 || !marker_ends_well(text, bytes) || m->epoch == 0 || m->epoch >= UINT32_MAX)
        return pst_fail(-EBADMSG, "folder %s: its file %s is damaged", f->path, MARKER);
    if (m->generation >= PST_GENERATION_MARKER_MAX)
        return pst_fail(-EBADMSG, "folder %s: its file %s is damaged: no clock gets to generation %" PRIu64,
                        f->path, MARKER, m->generation);
    return 0;
}

/* Return: 1 and *@m, 0 when there is none, or -errno. */
static int marker_read(const struct pst_log_folder *f, struct marker *m)
{
    char text[MARKER_BYTES_MAX + 1] = "";
    pst_cleanup_close int fd = openat(f->fd, MARKER, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n;
    int r;

    pst_assert(f->fd >= 0);
    if (fd < 0)
        return errno == ENOENT ? 0 : refuse_errno(f, MARKER);
    n = read(fd, text, MARKER_BYTES_MAX);
    if (n < 0)
        return refuse_errno(f, MARKER);
    r = marker_parse(f, text, m);
    return r < 0 ? r : 1;
}

/* A full disk may take a part, which is no error to it. */
static bool all_written(ssize_t written, int wanted)
{
    pst_assert(wanted > 0);
    if (written >= 0 && written != wanted)
        errno = ENOSPC;
    return written == wanted;
}

static int marker_put(const struct pst_log *log, uint32_t folder, uint64_t generation)
{
    const struct pst_log_folder *f = &log->folders[folder];
    char text[MARKER_BYTES_MAX], store[33];
    pst_cleanup_close int fd = -1;
    int len;

    pst_assert(folder < log->folder_count);
    pst_assert(f->fd >= 0);
    pst_hex_print(log->store_id, sizeof(log->store_id), store);
    len = snprintf(text, sizeof(text),
                   "penstock ssd %d\nstore %s\nseed %016" PRIx64 "\nfolder %" PRIu32 " of %" PRIu32
                   "\nsegment_bytes %" PRIu64 "\nepoch %" PRIu64 "\ngeneration %" PRIu64 "\n",
                   PST_LOG_VERSION, store, log->seed, folder, log->folder_count, log->segment_bytes,
                   log->epoch, generation);
    len += snprintf(text + len, sizeof(text) - (size_t)len, "check %016" PRIx64 "\nend\n",
                    marker_check(text, len));
    pst_assert(len > 0);
    pst_assert((size_t)len < sizeof(text));
    if (pst_fault(PST_FAULT_log_marker_eio)) {
        errno = EIO;
        return refuse_errno(f, "writing its marker");
    }
    fd = pst_own_replace(f->fd, MARKER_NEW);
    if (fd < 0)
        return pst_fail(fd, "folder %s: writing its marker: %s", f->path, pst_error_text());
    if (!all_written(write(fd, text, (size_t)len), len) || fsync(fd) < 0 ||
        renameat(f->fd, MARKER_NEW, f->fd, MARKER) < 0 || fsync(f->fd) < 0)
        return refuse_errno(f, "writing its marker");
    return 0;
}

int pst_log_marker_write(struct pst_log *log, uint64_t generation)
{
    int r = 0;

    pst_assert(log->folder_count > 0);
    pst_assert(log->epoch > 0);
    for (uint32_t i = 0; r == 0 && i < log->folder_count; i++)
        r = marker_put(log, i, generation);
    return r;
}

/* ---- whose a folder is ---- */

/* Without a marker a folder has to be empty: but for what a first start that was cut short may have left. */
static int check_empty(const struct pst_log_folder *f)
{
    static const char *const harmless[] = {".", "..", LOCK, MARKER_NEW, "lost+found"};
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    pst_assert(f->fd >= 0);
    if (!dir) {
        pst_close_fd(&fd);
        return refuse_errno(f, "listing it");
    }
    while (r == 0 && (entry = readdir(dir))) {
        bool known = false;

        for (size_t i = 0; i < pst_count_of(harmless); i++)
            known = known || strcmp(entry->d_name, harmless[i]) == 0;
        if (!known)
            r = pst_fail(-EEXIST, "folder %s is not penstock's: it has %s and no marker", f->path,
                         entry->d_name);
    }
    closedir(dir);
    return r;
}

static int take_lock(struct pst_log_folder *f)
{
    char pid[32] = "";
    int len;

    pst_assert(f->fd >= 0);
    pst_assert(f->lock_fd < 0);
    f->lock_fd = openat(f->fd, LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->lock_fd < 0)
        return refuse_errno(f, LOCK);
    if (flock(f->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK || pread(f->lock_fd, pid, sizeof(pid) - 1, 0) < 0)
            return refuse_errno(f, LOCK);
        pid[strcspn(pid, "\n")] = '\0';
        return pst_fail(-EBUSY, "folder %s is in use by process %s", f->path, pid);
    }
    len = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(f->lock_fd, 0) < 0 || !all_written(pwrite(f->lock_fd, pid, (size_t)len, 0), len))
        return refuse_errno(f, LOCK);
    return 0;
}

/* Return: 1 and *@m, 0 it is empty, or -errno. */
static int folder_open(struct pst_log_folder *f, struct marker *m)
{
    int r;

    pst_assert(f->fd < 0);
    pst_assert(f->lock_fd < 0);
    if (mkdir(f->path, 0700) < 0 && errno != EEXIST)
        return refuse_errno(f, "making it");
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0)
        return refuse_errno(f, "opening it");
    if (pst_own_check(f->fd, S_IFDIR, PST_OWN_WRITES) < 0)
        return pst_fail(-EPERM, "folder %s: %s; one that is not there yet is made", f->path,
                        pst_error_text());
    r = marker_read(f, m);
    if (r == 0)
        r = check_empty(f);
    if (r < 0)
        return r;
    r = take_lock(f);
    if (r < 0)
        return r;
    return marker_read(f, m); /* whoever had the lock before may have written it */
}

static int check_marker(const struct pst_log *log, uint32_t i, const struct marker *m,
                        const struct marker *first)
{
    const char *path = log->folders[i].path;

    pst_assert(i < log->folder_count);
    pst_assert(m->version == PST_LOG_VERSION);
    if (strcmp(m->store, first->store) != 0)
        return pst_fail(-EINVAL, "folders %s and %s are of different stores", log->folders[0].path, path);
    if (m->folder_count != log->folder_count || m->folder != i)
        return pst_fail(-EINVAL, "folder %s was number %u of %u, now it is number %u of %u", path,
                        m->folder + 1, m->folder_count, i + 1, log->folder_count);
    if (m->segment_bytes != log->segment_bytes)
        return pst_fail(-EINVAL, "folder %s has segments of %" PRIu64 " bytes, not of %" PRIu64, path,
                        m->segment_bytes, log->segment_bytes);
    return 0;
}

static void store_id_parse(const char *text, uint8_t *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned byte = 0;

        pst_assert(sscanf(text + 2 * i, "%2x", &byte) == 1);
        out[i] = (uint8_t)byte;
    }
}

static void segment_name(uint32_t segment, char name[NAME_BYTES_MAX])
{
    snprintf(name, NAME_BYTES_MAX, "segment-%05" PRIu32, segment);
}

static const struct pst_log_folder *folder_of(const struct pst_log *log, uint32_t segment)
{
    pst_assert(log->folder_count > 0 && log->folder_count <= PST_LOG_FOLDERS_MAX);
    return &log->folders[segment % log->folder_count];
}

static bool segment_exists(const struct pst_log *log, uint32_t segment, uint64_t *bytes)
{
    char name[NAME_BYTES_MAX];
    struct stat st;

    pst_assert(segment <= log->segment_count);
    segment_name(segment, name);
    if (fstatat(folder_of(log, segment)->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    *bytes = (uint64_t)st.st_blocks * 512;
    return true;
}

static bool has_segments(const struct pst_log *log)
{
    uint64_t bytes;

    pst_assert(log->folder_count > 0);
    for (uint32_t i = 0; i < log->folder_count; i++) {
        if (segment_exists(log, i, &bytes))
            return true;
    }
    return false;
}

int pst_log_folders_open(struct pst_log *log, const struct pst_log_options *options)
{
    struct marker markers[PST_LOG_FOLDERS_MAX] = {0}, *first = NULL;
    int r, found = 0;

    pst_assert(log->folder_count == 0);
    pst_assert(options->folder_count <= PST_LOG_FOLDERS_MAX);
    for (uint32_t i = 0; i < options->folder_count; i++) {
        log->folders[i] = (struct pst_log_folder){.fd = -1, .lock_fd = -1, .path = options->folders[i]};
        log->folder_count++;
        r = folder_open(&log->folders[i], &markers[i]);
        if (r < 0)
            return r;
        found += r;
        if (r == 1 && !first)
            first = &markers[i];
        log->epoch = pst_max(log->epoch, markers[i].epoch);
        log->generation_floor = pst_max(log->generation_floor, markers[i].generation);
    }
    /* A first start that was cut short may have left some of the markers, but no segments. */
    if (found > 0 && found < (int)log->folder_count && has_segments(log))
        return pst_fail(-EINVAL, "of %u folders only %d have anything in them", log->folder_count, found);
    for (uint32_t i = 0; first && i < log->folder_count; i++) {
        r = markers[i].version == 0 ? 0 : check_marker(log, i, &markers[i], first);
        if (r < 0)
            return r;
    }
    if (first) {
        store_id_parse(first->store, log->store_id, sizeof(log->store_id));
        log->seed = first->seed;
    } else {
        pst_random(log->store_id, sizeof(log->store_id));
        pst_random(&log->seed, sizeof(log->seed));
    }
    log->marked = found == (int)log->folder_count;
    pst_assert(log->folder_count == options->folder_count);
    pst_assert(log->epoch < UINT32_MAX);
    log->epoch++;
    return 0;
}

void pst_log_folders_close(struct pst_log *log)
{
    pst_assert(log->folder_count <= PST_LOG_FOLDERS_MAX);
    for (uint32_t i = 0; i < log->folder_count; i++) {
        pst_close_fd(&log->folders[i].fd);
        pst_close_fd(&log->folders[i].lock_fd);
    }
}

/* ---- segments ---- */

/* Before a byte is taken: a disk that fills up later would fail writes. */
static int check_room(const struct pst_log *log)
{
    uint64_t wanted[PST_LOG_FOLDERS_MAX] = {0}, bytes;

    pst_assert(log->folder_count > 0);
    pst_assert(log->segment_count > 0);
    for (uint32_t i = 0; i < log->segment_count; i++) {
        bytes = 0;
        segment_exists(log, i, &bytes);
        wanted[i % log->folder_count] += log->segment_bytes - pst_min(bytes, log->segment_bytes);
    }
    if (segment_exists(log, log->segment_count, &bytes))
        return pst_fail(-EINVAL, "folder %s has more than the %u segments asked: a log does not shrink",
                        folder_of(log, log->segment_count)->path, log->segment_count);
    for (uint32_t i = 0; i < log->folder_count; i++) {
        struct statvfs fs;
        uint64_t free_bytes;

        if (fstatvfs(log->folders[i].fd, &fs) < 0)
            return refuse_errno(&log->folders[i], "its file system");
        free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
        if (wanted[i] > free_bytes)
            return pst_fail(-ENOSPC,
                            "folder %s: %" PRIu64 " MiB more are needed, %" PRIu64 " MiB of %" PRIu64
                            " MiB are free",
                            log->folders[i].path, wanted[i] >> 20, free_bytes >> 20,
                            ((uint64_t)fs.f_blocks * fs.f_frsize) >> 20);
    }
    return 0;
}

int pst_log_segment_read(const struct pst_log *log, uint32_t segment, void *to, uint64_t bytes, uint64_t at)
{
    ssize_t n = -1;

    pst_assert(log->fds[segment] >= 0);
    pst_assert(at + bytes <= log->segment_bytes);
    errno = EIO;
    if (!pst_fault(PST_FAULT_log_read_eio))
        n = pread(log->fds[segment], to, bytes, (off_t)at);
    if (n == (ssize_t)bytes)
        return 0;
    return pst_fail(
        -EIO, "folder %s: segment-%05" PRIu32 " cannot be read, of %" PRIu64 " bytes from %" PRIu64 ": %s",
        folder_of(log, segment)->path, segment, bytes, at, n < 0 ? strerror(errno) : "it ends early");
}

/* What the segment's head says; its copy where the first is damaged. */
static int read_head(struct pst_log *log, uint32_t segment, uint8_t *buffer)
{
    struct pst_segment *s = &log->segments[segment];
    bool zero = true;
    int r = pst_log_segment_read(log, segment, buffer, PST_LOG_DATA_AT, 0);

    if (r < 0)
        return r;
    s->lane = PST_LANE_NONE;
    for (uint32_t copy = 0; copy < 2; copy++) {
        struct pst_segment_head head;

        memcpy(&head, buffer + copy * PST_LOG_ALIGN_BYTES, sizeof(head));
        zero = zero && head.magic == 0 && head.check == 0 && head.sequence == 0;
        if (!pst_segment_head_good(&head, log->seed, segment))
            continue;
        s->sequence = head.sequence;
        s->state = head.in_use == PST_SEGMENT_HEAD_USED ? PST_SEGMENT_FULL : PST_SEGMENT_FREE;
        s->failed = head.in_use == PST_SEGMENT_HEAD_FAILED;
        log->sequence = pst_max(log->sequence, head.sequence);
        return 0;
    }
    s->state = zero ? PST_SEGMENT_FREE : PST_SEGMENT_FULL; /* full, with sequence 0: damaged */
    return 0;
}

static int open_segment(struct pst_log *log, uint32_t segment, uint8_t *buffer)
{
    const struct pst_log_folder *f = folder_of(log, segment);
    char name[NAME_BYTES_MAX];
    int fd, r;

    pst_assert(segment < log->segment_count);
    pst_assert(log->fds[segment] < 0);
    segment_name(segment, name);
    fd = log->fds[segment] = pst_disk_file_open(f->fd, name, log->segment_bytes, &log->buffered);
    if (fd < 0)
        return pst_fail(fd, "folder %s: %s of %" PRIu64 " MiB: %s", f->path, name, log->segment_bytes >> 20,
                        strerror(-fd));
    r = read_head(log, segment, buffer);
    pst_assert(log->free_count < log->segment_count);
    log->free_count += r == 0 && log->segments[segment].state == PST_SEGMENT_FREE;
    return r;
}

/* Those that are there, or those that are not. */
static int open_segments(struct pst_log *log, bool there, uint8_t *buffer)
{
    uint64_t bytes;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < log->segment_count; i++)
        if (log->fds[i] < 0 && (!there || segment_exists(log, i, &bytes)))
            r = open_segment(log, i, buffer);
    return r;
}

/* The kernel tells of a sync that failed once: the head is written anew. Where that fails, too, the segment
 * is none that is free until a lane has written it. */
static void free_again(struct pst_log *log, uint32_t segment, uint8_t *buffer)
{
    struct pst_segment *s = &log->segments[segment];
    int fd = log->fds[segment];

    pst_assert(s->state == PST_SEGMENT_FREE);
    pst_assert(s->sequence > 0); /* it has been used */
    pst_assert(log->free_count > 0);
    pst_log_make_head(log, segment, s->failed ? PST_SEGMENT_HEAD_FAILED : PST_SEGMENT_HEAD_FREE, buffer);
    if (all_written(pwrite(fd, buffer, PST_LOG_DATA_AT, 0), PST_LOG_DATA_AT) &&
        !pst_fault(PST_FAULT_disk_sync_eio) && fdatasync(fd) == 0)
        return;
    s->state = PST_SEGMENT_FULL;
    s->hollow = s->failed = true;
    s->lane = segment % log->lane_count;
    log->free_count--;
}

/* A killed process may have left heads of free segments in a disk's cache. They are asked for by one call for
 * each folder: there may be thousands. */
static void sync_free_heads(struct pst_log *log, uint8_t *buffer)
{
    bool asked[PST_LOG_FOLDERS_MAX] = {false};

    pst_assert(log->folder_count > 0 && log->lane_count > 0);
    for (uint32_t i = 0; i < log->segment_count; i++) {
        struct pst_log_folder *f = &log->folders[i % log->folder_count];

        if (log->segments[i].state != PST_SEGMENT_FREE || log->segments[i].sequence == 0)
            continue;
        if (!asked[i % log->folder_count])
            f->unsynced = pst_fault(PST_FAULT_disk_sync_eio) || syncfs(f->fd) < 0;
        asked[i % log->folder_count] = true;
        if (f->unsynced)
            free_again(log, i, buffer);
    }
}

int pst_log_segments_open(struct pst_log *log)
{
    pst_cleanup_free uint8_t *buffer = aligned_alloc(PST_LOG_ALIGN_BYTES, PST_LOG_DATA_AT);
    int r;

    pst_assert(log->folder_count > 0);
    pst_assert(log->segment_count > 0);
    pst_assert(log->free_count == 0);
    if (!buffer)
        return pst_fail(-ENOMEM, "no memory to read segments");
    r = check_room(log);
    if (r == 0)
        r = open_segments(log, true, buffer);
    /* An epoch's sequences are its own, whatever of the last ones came to the disk. */
    if (r == 0 && log->sequence >> 32 >= log->epoch)
        r = pst_fail(-EBADMSG,
                     "folder %s: its marker is older than its segments: is it a copy that was put back?",
                     log->folders[0].path);
    if (r == 0 && !log->marked) /* from here on the folders are ours, also if this start is cut short */
        r = pst_log_marker_write(log, log->generation_floor);
    if (r == 0)
        r = open_segments(log, false, buffer);
    for (uint32_t i = 0; r == 0 && i < log->folder_count; i++) {
        if (fsync(log->folders[i].fd) < 0)
            r = refuse_errno(&log->folders[i], "syncing it");
    }
    if (r == 0)
        sync_free_heads(log, buffer);
    return r;
}
