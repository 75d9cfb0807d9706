/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/log_rig.h"

#include "base/fault.h"
#include "base/hash.h"

#include <sys/mman.h>

const char *driver;

struct pst_log_options options_of(const struct rig *rig)
{
    static const char *folders[1];

    folders[0] = rig->folder;
    return (struct pst_log_options){.folders = folders,
                                    .folder_count = 1,
                                    .bytes = (uint64_t)SEGMENTS * SEGMENT_BYTES,
                                    .segment_bytes = SEGMENT_BYTES,
                                    .lane_count = rig->lanes,
                                    .driver = driver,
                                    .depth = 16};
}

void open_log(struct rig *rig)
{
    struct pst_log_options options = options_of(rig);
    const char *fault = "";
    int r = pst_log_open(&options, &rig->log, &fault);

    if (r < 0)
        print_message("# %s\n", fault);
    assert_int_equal(r, 0);
    rig->lane = pst_log_lane(rig->log, 0);
}

void set_up(struct rig *rig)
{
    rig->folder = rig_folder();
    rig->lanes = 1;
    rig->memory = mmap(NULL, 2 * MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(rig->memory, MAP_FAILED);
    open_log(rig);
}

void poll_lane(struct rig *rig, struct pst_list *done)
{
    const struct pst_turn turn = pst_turn_endless();

    if (!pst_lane_poll(rig->lane, &turn, done) && !pst_lane_idle(rig->lane))
        rig_sleep(pst_lane_descriptor(rig->lane));
}

void poll_idly(struct rig *rig)
{
    struct pst_list done;

    pst_list_init(&done);
    poll_lane(rig, &done);
    assert_true(pst_list_empty(&done));
}

void close_log(struct rig *rig)
{
    while (!pst_lane_idle(rig->lane))
        poll_idly(rig);
    rig->log = pst_log_close(rig->log);
}

void tear_down(struct rig *rig)
{
    close_log(rig);
    munmap(rig->memory, 2 * MEMORY_BYTES);
    rig_remove(rig->folder);
    pst_faults_arm("");
}

uint32_t wait_all(struct rig *rig, uint32_t count)
{
    uint32_t failed = 0;

    while (count > 0) {
        struct pst_list done;

        pst_list_init(&done);
        poll_lane(rig, &done);
        pst_list_each (link, &done) {
            failed += pst_list_entry(link, struct pst_log_op, link)->result < 0;
            count--;
        }
    }
    return failed;
}

int wait_one(struct rig *rig, struct pst_log_op *op)
{
    wait_all(rig, 1);
    return op->result;
}

struct pst_log_value value_of(const struct kept *k, uint64_t bytes)
{
    static const char attrs[] = "attributes";

    return (struct pst_log_value){.key = {k->key, strlen(k->key)},
                                  .attrs = {attrs, k->generation % sizeof(attrs)},
                                  .generation = k->generation,
                                  .value_bytes = bytes,
                                  .value_crc = (uint32_t)k->generation * 7,
                                  .depth = (uint16_t)k->generation,
                                  .copies = k->generation & 7,
                                  .flags = k->generation * 3 & 31};
}

uint64_t bytes_of(uint64_t generation)
{
    static const uint64_t sizes[] = {0,      1,      100,        4095,        4096,     5000,
                                     16384,  20000,  65535,      65536,       65537,    100000,
                                     131072, 131073, 300000 - 4, 300000 + 96, 1u << 20, (1u << 20) + 1};

    return sizes[generation % pst_count_of(sizes)];
}

uint32_t cut(uint8_t *memory, uint64_t bytes, bool aligned, struct iovec iov[PIECES])
{
    uint32_t count = 0;

    for (uint64_t at = 0; at < bytes; count++) {
        uint64_t piece = count == PIECES - 1 ? bytes - at : pst_min(bytes - at, aligned ? 8192 : 5001);

        iov[count] = (struct iovec){memory + at, piece};
        at += piece;
    }
    return count;
}

int append(struct rig *rig, struct kept *k, uint64_t generation, bool durable)
{
    struct iovec iov[PIECES];
    uint64_t bytes = bytes_of(generation);
    bool aligned = generation % 2 == 0 || bytes > PST_LOG_BOUNCE_BYTES_MAX;
    uint8_t *memory = rig->memory + (aligned ? 0 : 13);
    struct pst_log_append a = {.iov = iov, .durable = durable};
    int r;

    k->generation = generation;
    rig_fill(memory, bytes, generation);
    a.iov_count = cut(memory, bytes, aligned, iov);
    a.value = value_of(k, bytes);
    while ((r = pst_log_append(rig->lane, &a)) == -EBUSY)
        poll_idly(rig);
    if (r == 0)
        r = wait_one(rig, &a.op);
    if (r == 0) {
        k->place = a.place;
        k->crc = a.crc;
        k->ticket = a.op.ticket;
        k->there = true;
    }
    return r;
}

int read_span(struct rig *rig, const struct kept *k, uint64_t offset, uint64_t bytes)
{
    struct iovec iov[PIECES];
    uint64_t value_bytes = bytes_of(k->generation);
    struct pst_log_read read = {
        .value = value_of(k, value_bytes), .place = k->place, .crc = k->crc, .iov = iov};
    uint8_t *to = rig->memory + MEMORY_BYTES;
    bool aligned;
    int r;

    pst_log_span(value_bytes, &offset, &bytes);
    aligned = k->generation % 3 != 0 || bytes > PST_LOG_BOUNCE_BYTES_MAX;
    to += aligned ? 0 : 7;
    read.offset = offset;
    read.bytes = bytes;
    memset(to, 0, bytes);
    read.iov_count = cut(to, bytes, aligned, iov);
    r = pst_log_read(rig->lane, &read);
    if (r == 0)
        r = wait_one(rig, &read.op);
    if (r == 0) {
        rig_fill(rig->memory, value_bytes, k->generation);
        assert_memory_equal(to, rig->memory + offset, bytes);
    }
    return r;
}

void name_all(struct kept *kept)
{
    memset(kept, 0, VALUES * sizeof(*kept));
    for (int i = 0; i < VALUES; i++)
        snprintf(kept[i].key, sizeof(kept[i].key), "key-%d", i);
}

void assert_all(struct rig *rig, const struct kept *kept)
{
    for (int i = 0; i < VALUES; i++) {
        if (kept[i].there)
            assert_int_equal(read_span(rig, &kept[i], 0, bytes_of(kept[i].generation)), 0);
    }
}

void flush(struct rig *rig)
{
    struct pst_log_sync f = {0};

    pst_log_sync(rig->lane, &f);
    assert_int_equal(wait_one(rig, &f.op), 0);
}

void scan(struct rig *rig, struct kept *kept, struct pst_log_scanned *told)
{
    struct pst_log_scan *scan;
    struct pst_log_found found;
    int r;

    assert_int_equal(pst_log_scan_open(rig->log, &scan), 0);
    while ((r = pst_log_scan_next(scan, &found)) == 1) {
        int i = atoi((const char *)found.value.key.data + 4);
        struct pst_log_value expected;

        assert_in_range(i, 0, VALUES - 1);
        expected = value_of(&kept[i], bytes_of(kept[i].generation));
        assert_true(kept[i].there && !kept[i].found);
        assert_true(pst_bytes_equal(found.value.key, expected.key));
        assert_true(pst_bytes_equal(found.value.attrs, expected.attrs));
        assert_int_equal(found.value.generation, expected.generation);
        assert_int_equal(found.value.value_bytes, expected.value_bytes);
        assert_int_equal(found.value.value_crc, expected.value_crc);
        assert_int_equal(found.value.depth, expected.depth);
        assert_int_equal(found.value.copies, expected.copies);
        assert_int_equal(found.value.flags, expected.flags);
        kept[i].place = found.place;
        kept[i].crc = found.crc;
        kept[i].found = true;
        pst_log_adopt(rig->log, &found);
    }
    assert_int_equal(r, 0);
    pst_log_scan_close(scan, told);
    for (int i = 0; i < VALUES; i++) {
        assert_int_equal(kept[i].found, kept[i].there);
        kept[i].found = false;
    }
}

/* What lives in the segment that is taken back is moved. */
void move_all(struct rig *rig, struct kept *kept)
{
    struct pst_log_found found;
    int r;

    while ((r = pst_log_reclaim_next(rig->lane, &found)) != 0) {
        struct kept *k = r == 1 ? &kept[atoi((const char *)found.value.key.data + 4)] : NULL;
        struct pst_log_move move = {.value = found.value, .from = found.place, .crc = found.crc};

        if (!k)
            poll_idly(rig);
        if (!k || !k->there || memcmp(&k->place, &found.place, sizeof(found.place)) != 0)
            continue;
        assert_int_equal(pst_log_move(rig->lane, &move), 0);
        assert_int_equal(wait_one(rig, &move.op), 0);
        pst_log_forget(rig->lane, &found.value, found.place);
        k->place = move.to;
        k->crc = move.crc;
    }
}

void end_reclaim(struct rig *rig)
{
    pst_log_reclaim_end(rig->lane, PST_LOG_EMPTIED);
    while (!pst_log_reclaim_over(rig->lane))
        poll_idly(rig);
}

/* Takes a segment back. */
void reclaim(struct rig *rig, struct kept *kept)
{
    while (pst_log_reclaim_begin(rig->lane, 100) != 1) /* until an index is written */
        poll_idly(rig);
    move_all(rig, kept);
    end_reclaim(rig);
}

void reclaim_all(struct rig *rig, struct kept *kept)
{
    for (int n = 0; n < SEGMENTS && pst_log_reclaim_begin(rig->lane, 100) == 1; n++) {
        move_all(rig, kept);
        end_reclaim(rig);
    }
}

void bury(struct rig *rig, struct kept *k)
{
    struct pst_log_value value = value_of(k, bytes_of(k->generation));

    assert_int_equal(pst_log_delete(rig->lane, &value, k->place), 0);
    k->there = false;
}

void restart(struct rig *rig, struct kept *kept)
{
    flush(rig);
    close_log(rig);
    open_log(rig);
    scan(rig, kept, NULL);
}

/* How many copies of the key a start finds. */
int copies_of(struct rig *rig, const char *key)
{
    struct pst_log_scan *again;
    struct pst_log_found found;
    int count = 0;

    assert_int_equal(pst_log_scan_open(rig->log, &again), 0);
    while (pst_log_scan_next(again, &found) == 1)
        count += pst_bytes_equal(found.value.key, (struct pst_bytes){key, strlen(key)});
    pst_log_scan_close(again, NULL);
    return count;
}

void flush_fails(struct rig *rig)
{
    struct pst_log_sync f = {0};

    pst_log_sync(rig->lane, &f);
    assert_int_equal(wait_one(rig, &f.op), -EIO);
}
