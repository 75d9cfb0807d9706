#include "disk_rig.h"

#include "base/fault.h"
#include "base/hash.h"
#include "disk/simulated.h"
#include "store/log_reclaim.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    MIB = 1 << 20,
    SEGMENT_BYTES = 4 * MIB,
    SEGMENTS = 16,
    VALUES = 200,
    MEMORY_BYTES = 8 * MIB,
    PIECES = 4,
};

struct rig {
    char *folder;
    struct pst_log *log;
    struct pst_lane *lane;
    uint8_t *memory; /* what is written, then what is read */
};

/* A value of the test: which it is says all about it. */
struct kept {
    char key[32];
    uint64_t generation;
    struct pst_log_place place;
    uint32_t crc;
    uint64_t ticket;
    bool there, found;
};

static const char *driver; /* of this test */

static struct pst_log_options options_of(const struct rig *rig)
{
    static const char *folders[1];

    folders[0] = rig->folder;
    return (struct pst_log_options){.folders = folders,
                                    .folder_count = 1,
                                    .bytes = (uint64_t)SEGMENTS * SEGMENT_BYTES,
                                    .segment_bytes = SEGMENT_BYTES,
                                    .lane_count = 1,
                                    .driver = driver,
                                    .depth = 16};
}

static void open_log(struct rig *rig)
{
    struct pst_log_options options = options_of(rig);
    const char *fault = "";
    int r = pst_log_open(&options, &rig->log, &fault);

    if (r < 0)
        print_message("# %s\n", fault);
    assert_int_equal(r, 0);
    rig->lane = pst_log_lane(rig->log, 0);
}

static void set_up(struct rig *rig)
{
    rig->folder = rig_folder();
    rig->memory = mmap(NULL, 2 * MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(rig->memory, MAP_FAILED);
    open_log(rig);
}

static void poll_lane(struct rig *rig, struct pst_list *done)
{
    if (!pst_lane_poll(rig->lane, done) && !pst_lane_idle(rig->lane))
        rig_sleep(pst_lane_descriptor(rig->lane));
}

/* While nothing of the test's is underway. */
static void poll_idly(struct rig *rig)
{
    struct pst_list done;

    pst_list_init(&done);
    poll_lane(rig, &done);
    assert_true(pst_list_empty(&done));
}

static void close_log(struct rig *rig)
{
    while (!pst_lane_idle(rig->lane))
        poll_idly(rig);
    rig->log = pst_log_close(rig->log);
}

static void tear_down(struct rig *rig)
{
    close_log(rig);
    munmap(rig->memory, 2 * MEMORY_BYTES);
    rig_remove(rig->folder);
    pst_faults_arm("");
}

/* Until all that was asked is done. Return: how many failed. */
static uint32_t wait_all(struct rig *rig, uint32_t count)
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

static int wait_one(struct rig *rig, struct pst_log_op *op)
{
    wait_all(rig, 1);
    return op->result;
}

static struct pst_log_value value_of(const struct kept *k, uint64_t bytes)
{
    static const char attrs[] = "attributes";

    return (struct pst_log_value){.key = {k->key, strlen(k->key)},
                                  .attrs = {attrs, k->generation % sizeof(attrs)},
                                  .generation = k->generation,
                                  .value_bytes = bytes,
                                  .value_crc = (uint32_t)k->generation * 7,
                                  .depth = (uint16_t)k->generation,
                                  .flags = (uint8_t)(k->generation * 3)};
}

/* All sizes: none, packed, of whole blocks, with an odd end, of several blocks. */
static uint64_t bytes_of(uint64_t generation)
{
    static const uint64_t sizes[] = {0,      1,      100,        4095,        4096,     5000,
                                     16384,  20000,  65535,      65536,       65537,    100000,
                                     131072, 131073, 300000 - 4, 300000 + 96, 1u << 20, (1u << 20) + 1};

    return sizes[generation % pst_count_of(sizes)];
}

/* The value's bytes in @memory as pieces, aligned or not. Return: their number. */
static uint32_t cut(uint8_t *memory, uint64_t bytes, bool aligned, struct iovec iov[PIECES])
{
    uint32_t count = 0;

    for (uint64_t at = 0; at < bytes; count++) {
        uint64_t piece = count == PIECES - 1 ? bytes - at : pst_min(bytes - at, aligned ? 8192 : 5001);

        iov[count] = (struct iovec){memory + at, piece};
        at += piece;
    }
    return count;
}

static int append(struct rig *rig, struct kept *k, uint64_t generation, bool durable)
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

/* Reads a span and compares it. Return: the read's result. */
static int read_span(struct rig *rig, const struct kept *k, uint64_t offset, uint64_t bytes)
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

static void name_all(struct kept *kept)
{
    memset(kept, 0, VALUES * sizeof(*kept));
    for (int i = 0; i < VALUES; i++)
        snprintf(kept[i].key, sizeof(kept[i].key), "key-%d", i);
}

static void assert_all(struct rig *rig, const struct kept *kept)
{
    for (int i = 0; i < VALUES; i++) {
        if (kept[i].there)
            assert_int_equal(read_span(rig, &kept[i], 0, bytes_of(kept[i].generation)), 0);
    }
}

static void flush(struct rig *rig)
{
    struct pst_log_flush f = {0};

    pst_log_flush(rig->lane, &f);
    assert_int_equal(wait_one(rig, &f.op), 0);
}

/* What a start finds becomes the places; whether it is just what is said to be there. */
static void scan(struct rig *rig, struct kept *kept, struct pst_log_scanned *told)
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

static void fill(struct rig *rig, struct kept *kept)
{
    name_all(kept);
    for (int i = 0; i < VALUES; i++)
        assert_int_equal(append(rig, &kept[i], 1000 + (uint64_t)i, i % 50 == 0), 0);
}

static void values_of_all_sizes_come_back(void **state)
{
    struct pst_log_stat stat;
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    set_up(&rig);
    fill(&rig, kept);
    assert_all(&rig, kept);
    for (int i = 0; i < VALUES; i++) { /* parts */
        uint64_t bytes = bytes_of(kept[i].generation);

        assert_int_equal(read_span(&rig, &kept[i], bytes / 3, bytes / 3), 0);
        assert_int_equal(read_span(&rig, &kept[i], bytes - bytes / 5, bytes / 5), 0);
    }
    pst_log_stat(rig.log, &stat);
    assert_true(stat.written_bytes >= stat.appended_bytes && stat.corrupt == 0 && stat.failed == 0);
    tear_down(&rig);
}

/* However large a value is, no poll computes more than a part of its checksums; a flush waits for it all the
 * same. */
static void a_large_value_is_no_long_turn(void **state)
{
    enum { BYTES = 2 * MIB, POLLS_MIN = BYTES / PST_LOG_BLOCK_BYTES };
    struct kept k = {.key = "large", .generation = 1};
    struct pst_log_flush f = {0};
    struct pst_log_stat stat;
    struct pst_list done;
    struct rig rig;
    struct iovec piece;
    struct pst_log_append a = {.iov = &piece, .iov_count = 1}, other = a;
    uint32_t ended = 0;
    int polls = 0;

    driver = rig_driver(*state);
    set_up(&rig);
    pst_list_init(&done);
    piece = (struct iovec){rig.memory, BYTES};
    a.value = other.value = value_of(&k, BYTES);
    assert_int_equal(pst_log_append(rig.lane, &a), 0);
    assert_int_equal(pst_log_append(rig.lane, &other), -EBUSY);
    pst_log_flush(rig.lane, &f);
    for (pst_log_stat(rig.log, &stat); stat.written_bytes == 0; pst_log_stat(rig.log, &stat)) {
        assert_true(pst_list_empty(&done));
        assert_true(pst_lane_poll(rig.lane, &done));
        polls++;
    }
    pst_list_each (link, &done) { /* a disk may be faster than the poll that writes */
        assert_int_equal(pst_list_entry(link, struct pst_log_op, link)->result, 0);
        ended++;
    }
    assert_true(polls >= POLLS_MIN);
    assert_true(f.op.ticket > 0); /* it does not wait for what comes now */
    assert_int_equal(wait_all(&rig, 2 - ended), 0);
    assert_true(a.op.ticket > 0 && a.place.offset > 0);
    tear_down(&rig);
}

/* A third overwritten, a third deleted; over a flush, and a second start. */
static void a_restart_finds_what_was_flushed(void **state)
{
    struct pst_log_scanned told;
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    set_up(&rig);
    fill(&rig, kept);
    for (int i = 0; i < VALUES; i++) {
        struct pst_log_value v = value_of(&kept[i], bytes_of(kept[i].generation));

        if (i % 3 == 0)
            continue;
        assert_int_equal(pst_log_bury(rig.lane, &v, kept[i].place), 0);
        kept[i].there = false;
        if (i % 3 == 1)
            assert_int_equal(append(&rig, &kept[i], 2000 + (uint64_t)i, false), 0);
    }
    flush(&rig);
    for (int start = 0; start < 2; start++) {
        close_log(&rig);
        open_log(&rig);
        scan(&rig, kept, &told);
        assert_int_equal(told.buried, 2 * VALUES / 3);
        assert_int_equal(told.damaged_values + told.damaged_groups + told.damaged_segments, 0);
        assert_true(pst_log_generation_floor(rig.log) >= 2000 + VALUES - 2);
        assert_all(&rig, kept);
    }
    assert_int_equal(append(&rig, &kept[0], 3000, true), 0);
    assert_all(&rig, kept);
    tear_down(&rig);
}

static void a_full_log_says_so(void **state)
{
    struct pst_log_stat stat;
    struct kept kept[VALUES];
    struct rig rig;
    int r = 0, i;

    driver = rig_driver(*state);
    set_up(&rig);
    name_all(kept);
    for (i = 0; i < VALUES && r == 0; i++)
        r = append(&rig, &kept[i], 1006 + 18 * (uint64_t)i, false); /* a MiB each */
    assert_int_equal(bytes_of(1006), MIB);
    assert_int_equal(r, -ENOSPC);
    assert_in_range(i, 2 * SEGMENTS, 4 * SEGMENTS);
    pst_log_stat(rig.log, &stat);
    assert_int_equal(stat.segments_free, 1); /* what tombstones and moves may have */
    assert_all(&rig, kept);
    tear_down(&rig);
}

/* A failed write or sync is told to whoever it hits, and the log goes on elsewhere. */
static void failures_hit_what_they_hit(void **state)
{
    static const char *const faults[] = {"disk_write_eio:nth=1", "disk_write_enospc:nth=2",
                                         "disk_sync_eio:nth=1"};
    struct pst_log_stat stat;
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    set_up(&rig);
    name_all(kept);
    for (size_t i = 0; i < pst_count_of(faults); i++) {
        uint32_t failed = 0;

        pst_faults_arm(faults[i]);
        for (int n = 0; n < 8; n++) {
            int r = append(&rig, &kept[8 * i + (size_t)n], 1000 + 8 * i + (uint64_t)n, true);

            assert_true(r == 0 || r == -EIO || r == -ENOSPC);
            failed += r < 0;
        }
        assert_in_range(failed, 1, 4);
    }
    pst_faults_arm("");
    pst_log_stat(rig.log, &stat);
    assert_int_equal(stat.segments_failed, pst_count_of(faults));
    assert_all(&rig, kept);
    pst_faults_arm("disk_read_eio:nth=1");
    for (int i = 0; i < VALUES; i++) {
        if (kept[i].there && bytes_of(kept[i].generation) > 0) {
            assert_int_equal(read_span(&rig, &kept[i], 0, bytes_of(kept[i].generation)), -EIO);
            break;
        }
    }
    tear_down(&rig);
}

/* What lives in the segment that is taken back is moved. */
static void move_all(struct rig *rig, struct kept *kept)
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

static void end_reclaim(struct rig *rig)
{
    pst_log_reclaim_end(rig->lane, false);
    while (!pst_log_reclaim_over(rig->lane))
        poll_idly(rig);
}

/* Takes a segment back. */
static void reclaim(struct rig *rig, struct kept *kept)
{
    assert_int_equal(pst_log_reclaim_begin(rig->lane, 100), 1);
    move_all(rig, kept);
    end_reclaim(rig);
}

/* A value that could not be written to one segment is written to another; a restart later it is moved, and
 * not to where the word of the first one's end would find it. */
static void what_failed_is_not_moved_to_its_grave(void **state)
{
    static const char *const faults[] = {"disk_write_eio:nth=2", "disk_sync_eio:nth=1"};
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (size_t i = 0; i < pst_count_of(faults); i++) {
        set_up(&rig);
        name_all(kept);
        pst_faults_arm(faults[i]);
        assert_int_equal(append(&rig, &kept[0], 1005, true), -EIO);
        pst_faults_arm("");
        for (int n = 0; n < 5; n++) /* the segment is full then */
            assert_int_equal(append(&rig, &kept[n], n ? 1006 : 1005, true), 0);
        for (int start = 0; start < 2; start++) {
            struct pst_log_place place;

            flush(&rig);
            close_log(&rig);
            open_log(&rig);
            scan(&rig, kept, NULL);
            assert_int_equal(append(&rig, &kept[5 + start], 1006, true), 0); /* written on where that goes */
            place = kept[0].place;
            for (int n = 0; n < SEGMENTS && start == 0 && kept[0].place.segment == place.segment; n++)
                reclaim(&rig, kept);
            assert_true(start == 1 || kept[0].place.segment != place.segment);
        }
        assert_all(&rig, kept);
        tear_down(&rig);
    }
}

static void bury(struct rig *rig, struct kept *k)
{
    struct pst_log_value value = value_of(k, bytes_of(k->generation));

    assert_int_equal(pst_log_bury(rig->lane, &value, k->place), 0);
    k->there = false;
}

static void restart(struct rig *rig, struct kept *kept)
{
    flush(rig);
    close_log(rig);
    open_log(rig);
    scan(rig, kept, NULL);
}

/* A key that was given up comes again, with the generation that it had, or an earlier one. */
static void what_comes_again_in_another_era_lives(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (int other = 0; other < 2; other++) {
        set_up(&rig);
        name_all(kept);
        for (int i = 0; i < 20; i++)
            assert_int_equal(append(&rig, &kept[i], 1020, true), 0);
        for (int i = 0; i < 20; i++)
            bury(&rig, &kept[i]);
        if (other)
            pst_log_new_era(rig.log);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(append(&rig, &kept[i], i % 2 ? 1020 : 1010, true), 0);
            kept[i].there = other;
        }
        restart(&rig, kept);
        if (other) {
            reclaim(&rig, kept);
            restart(&rig, kept);
            for (int i = 0; i < 10; i++)
                bury(&rig, &kept[i]);
            restart(&rig, kept);
        }
        assert_all(&rig, kept);
        tear_down(&rig);
    }
}

static void read_whole(struct rig *rig, const struct pst_log_found *found, uint64_t seed)
{
    struct iovec iov = {rig->memory + MEMORY_BYTES, found->value.value_bytes};
    struct pst_log_read read = {.value = found->value,
                                .place = found->place,
                                .crc = found->crc,
                                .bytes = iov.iov_len,
                                .iov = &iov,
                                .iov_count = 1};

    assert_int_equal(pst_log_read(rig->lane, &read), 0);
    assert_int_equal(wait_one(rig, &read.op), 0);
    rig_fill(rig->memory, iov.iov_len, seed);
    assert_memory_equal(iov.iov_base, rig->memory, iov.iov_len);
}

/* Power fails with appends underway; what was acknowledged as durable is there, and nothing is that never
 * was. */
static void a_power_cut_loses_nothing_durable(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct pst_log_scanned told;
        struct pst_log_scan *again;
        struct pst_log_found found;
        struct pst_log_append last[4] = {0};
        uint32_t last_count = 0;

        set_up(&rig);
        name_all(kept);
        for (int i = 0; i < 40; i++)
            assert_int_equal(append(&rig, &kept[i], 1000 + 40 * seed + (uint64_t)i, true), 0);
        for (; last_count < 4; last_count++) { /* never waited for */
            struct pst_log_append *a = &last[last_count];
            static struct iovec iov;

            iov = (struct iovec){rig.memory, 3 * MIB / 2};
            rig_fill(rig.memory, iov.iov_len, 99);
            a->value = value_of(&kept[100 + last_count], iov.iov_len);
            a->value.generation = 5000 + last_count;
            a->iov = &iov;
            a->iov_count = 1;
            if (pst_log_append(rig.lane, a) < 0)
                break;
        }
        pst_simulated_cut(seed);
        wait_all(&rig, last_count);
        close_log(&rig);
        pst_simulated_restore();
        open_log(&rig);
        for (int i = 0; i < 40; i++)
            kept[i].found = false;
        assert_int_equal(pst_log_scan_open(rig.log, &again), 0);
        while (pst_log_scan_next(again, &found) == 1) {
            int i = atoi((const char *)found.value.key.data + 4);

            if (i < 40)
                kept[i].found = true;
            else /* may be there, when it is whole */
                read_whole(&rig, &found, 99);
        }
        pst_log_scan_close(again, &told);
        for (int i = 0; i < 40; i++)
            assert_true(kept[i].found);
        assert_all(&rig, kept);
        tear_down(&rig);
    }
}

/* How many copies of the key a start finds. */
static int copies_of(struct rig *rig, const char *key)
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

/* A durable value is overwritten while it is moved, and power fails before the newer one is durable. */
static void what_dies_while_it_is_moved_may_come_back(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (uint64_t seed = 0; seed < 16; seed++) {
        struct pst_log_found found;
        struct pst_log_move move;
        int r;

        set_up(&rig);
        name_all(kept);
        for (int i = 0; i < 5; i++) /* its segment is full then */
            assert_int_equal(append(&rig, &kept[i], i ? 1006 : 1005, true), 0);
        assert_int_equal(pst_log_reclaim_begin(rig.lane, 100), 1);
        while ((r = pst_log_reclaim_next(rig.lane, &found)) == -EAGAIN)
            poll_idly(&rig);
        assert_true(r == 1 && found.value.generation == 1005);
        move = (struct pst_log_move){.value = found.value, .from = found.place, .crc = found.crc};
        assert_int_equal(pst_log_move(rig.lane, &move), 0);
        assert_int_equal(wait_one(&rig, &move.op), 0);
        assert_int_equal(append(&rig, &kept[0], 2000, false), 0);
        assert_int_equal(pst_log_bury_after(rig.lane, &move.value, move.from, kept[0].ticket), 0);
        assert_int_equal(pst_log_bury_moved(rig.lane, &move.value, move.to), 0);
        assert_int_equal(append(&rig, &kept[5], 1010, false), 0); /* tombstones go along */
        pst_simulated_cut(seed);
        end_reclaim(&rig);
        close_log(&rig);
        pst_simulated_restore();
        open_log(&rig);
        assert_true(copies_of(&rig, kept[0].key) > 0);
        tear_down(&rig);
    }
}

static void flush_fails(struct rig *rig)
{
    struct pst_log_flush f = {0};

    pst_log_flush(rig->lane, &f);
    assert_int_equal(wait_one(rig, &f.op), -EIO);
}

/* The sync of a durable value's successor fails. Until the newer one is durable elsewhere the older one
 * stays: no tombstone is written, and its segment is not freed. */
static void what_a_failed_sync_should_replace_stays(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (uint64_t seed = 0; seed < 16; seed++) {
        bool reclaims = seed % 2;
        struct pst_log_value old;
        struct pst_log_place at;

        set_up(&rig);
        name_all(kept);
        for (int i = 0; i < 6; i++) /* the segment of the first is full then */
            assert_int_equal(append(&rig, &kept[i], i ? 1006 : 1005, true), 0);
        if (reclaims) {
            assert_int_equal(pst_log_reclaim_begin(rig.lane, 100), 1);
            kept[0].there = false;
            move_all(&rig, kept);
            flush(&rig);
        }
        old = value_of(&kept[0], bytes_of(1005));
        at = kept[0].place;
        assert_int_equal(append(&rig, &kept[0], 2000, false), 0);
        assert_int_equal(pst_log_bury_after(rig.lane, &old, at, kept[0].ticket), 0);
        pst_faults_arm("disk_sync_eio:nth=1");
        flush_fails(&rig);
        pst_faults_arm("");
        for (int i = 6; i < 9; i++) /* tombstones go along */
            assert_int_equal(append(&rig, &kept[i], 1010, true), 0);
        flush_fails(&rig);
        if (reclaims)
            end_reclaim(&rig);
        pst_simulated_cut(seed);
        close_log(&rig);
        pst_simulated_restore();
        open_log(&rig);
        assert_true(copies_of(&rig, kept[0].key) > 0);
        tear_down(&rig);
    }
}

/* ---- folders ---- */

static int open_says(const struct pst_log_options *options, const char *part)
{
    struct pst_log *log = NULL;
    const char *fault = "";
    int r = pst_log_open(options, &log, &fault);

    assert_null(log);
    if (r < 0 && !strstr(fault, part))
        print_message("# %s: not %s\n", fault, part);
    assert_true(r < 0 && strstr(fault, part));
    return r;
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void folders_that_are_not_ours_are_left_alone(void **state)
{
    struct rig rig = {.folder = rig_folder()};
    struct pst_log_options options = options_of(&rig);
    char path[256];

    (void)state;
    driver = NULL;
    write_text(rig.folder, "diary", "dear");
    assert_int_equal(open_says(&options, "diary"), -EEXIST);
    snprintf(path, sizeof(path), "%s/lock", rig.folder);
    assert_int_equal(access(path, F_OK), -1); /* nothing was written */
    write_text(rig.folder, "penstock", "my notes about penstocks\n");
    assert_int_equal(open_says(&options, "not one of penstock's"), -EEXIST);
    write_text(rig.folder, "penstock", "penstock ssd 2\nwho knows\n");
    assert_int_equal(open_says(&options, "format 2"), -EPROTONOSUPPORT);
    write_text(rig.folder, "penstock", "penstock ssd 1\nstore 00\n");
    assert_int_equal(open_says(&options, "damaged"), -EBADMSG);
    rig_remove(rig.folder);
}

static void what_cannot_be_is_refused(void **state)
{
    struct rig rig;
    struct pst_log_options options, other;
    char pid[32];

    (void)state;
    driver = NULL;
    set_up(&rig);
    options = options_of(&rig);
    snprintf(pid, sizeof(pid), "process %d", (int)getpid());
    assert_int_equal(open_says(&options, pid), -EBUSY);
    rig.log = pst_log_close(rig.log);
    other = options;
    other.segment_bytes *= 2;
    assert_int_equal(open_says(&other, "segments of 4194304 bytes"), -EINVAL);
    other = options;
    other.bytes = 1ull << 37;
    other.segment_bytes = SEGMENT_BYTES;
    assert_int_equal(open_says(&other, "MiB more are needed"), -ENOSPC);
    other = options;
    other.bytes -= SEGMENT_BYTES;
    assert_int_equal(open_says(&other, "does not shrink"), -EINVAL);
    other.bytes = SEGMENT_BYTES;
    assert_int_equal(open_says(&other, "at least"), -EINVAL);
    open_log(&rig);
    tear_down(&rig);
}

/* Segments are dealt over them; both are needed, in their order. */
static void two_folders_are_one_log(void **state)
{
    struct rig rig = {.folder = rig_folder()};
    struct pst_log_options options = options_of(&rig);
    char *second = rig_folder(), *third = rig_folder();
    const char *both[] = {rig.folder, second}, *swapped[] = {second, rig.folder},
               *other[] = {rig.folder, third};
    const char *fault = "";
    char path[256];

    (void)state;
    driver = NULL;
    options.folders = both;
    options.folder_count = 2;
    assert_int_equal(pst_log_open(&options, &rig.log, &fault), 0);
    pst_log_close(rig.log);
    snprintf(path, sizeof(path), "%s/segment-00001", second);
    assert_int_equal(access(path, F_OK), 0);
    options.folders = swapped;
    assert_int_equal(open_says(&options, "was number 2 of 2"), -EINVAL);
    options.folders = other;
    assert_int_equal(open_says(&options, "only 1 have anything"), -EINVAL);
    options.folders = &both[1];
    options.folder_count = 1;
    assert_int_equal(open_says(&options, "was number 2 of 2"), -EINVAL);
    options.folders = both;
    options.folder_count = 2;
    assert_int_equal(pst_log_open(&options, &rig.log, &fault), 0);
    pst_log_close(rig.log);
    rig_remove(rig.folder);
    rig_remove(second);
    rig_remove(third);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_EACH(values_of_all_sizes_come_back),
        OVER_EACH(a_large_value_is_no_long_turn),
        OVER_EACH(a_restart_finds_what_was_flushed),
        OVER_EACH(a_full_log_says_so),
        OVER_EACH(failures_hit_what_they_hit),
        OVER_EACH(what_failed_is_not_moved_to_its_grave),
        OVER_EACH(what_comes_again_in_another_era_lives),
        OVER("simulated:seed=2", a_power_cut_loses_nothing_durable),
        OVER("simulated:seed=2", what_dies_while_it_is_moved_may_come_back),
        OVER("simulated:seed=3", what_a_failed_sync_should_replace_stays),
        cmocka_unit_test(folders_that_are_not_ours_are_left_alone),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(two_folders_are_one_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
