/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/disk_rig.h"

#include "base/fault.h"
#include "disk/disk.h"
#include "disk/simulated.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { BLOCK = PST_DISK_BLOCK_BYTES, FILE_BYTES = 4 << 20, PIECES = 40 };

struct rig {
    char *folder;
    int fds[2];
    struct pst_disk *disk;
    uint8_t *memory; /* FILE_BYTES to write, as many to read */
};

static void set_up(struct rig *rig, const char *name, uint32_t depth)
{
    const char *fault = "";
    bool buffered = false;
    struct iovec region;
    int folder_fd;

    rig->folder = rig_folder();
    folder_fd = open(rig->folder, O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 2; i++) {
        rig->fds[i] = pst_disk_file_open(folder_fd, i ? "b" : "a", FILE_BYTES, &buffered);
        assert_true(rig->fds[i] >= 0);
    }
    close(folder_fd);
    rig->memory = mmap(NULL, 2 * FILE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(rig->memory, MAP_FAILED);
    rig_fill(rig->memory, FILE_BYTES, 1);
    region = (struct iovec){rig->memory, FILE_BYTES}; /* what is read is not registered */
    assert_int_equal(pst_disk_open(&(struct pst_disk_options){.driver = name,
                                                              .depth = depth,
                                                              .regions = &region,
                                                              .region_count = 1,
                                                              .fds = rig->fds,
                                                              .fd_count = 2},
                                   &rig->disk, &fault),
                     0);
}

static void tear_down(struct rig *rig)
{
    pst_disk_close(rig->disk);
    close(rig->fds[0]);
    close(rig->fds[1]);
    munmap(rig->memory, 2 * FILE_BYTES);
    rig_remove(rig->folder);
    pst_faults_arm("");
}

static void wait_for(struct rig *rig, uint32_t count)
{
    const struct pst_turn turn = pst_turn_endless();

    while (count > 0) {
        struct pst_list done;
        uint32_t ended;

        pst_list_init(&done);
        ended = pst_disk_poll(rig->disk, &turn, &done);
        assert_true(ended <= count);
        count -= ended;
        if (ended == 0 && !pst_disk_has_more(rig->disk))
            rig_sleep(pst_disk_descriptor(rig->disk));
    }
}

static int carry_out(struct rig *rig, struct pst_disk_op *op)
{
    assert_int_equal(pst_disk_submit(rig->disk, op), 0);
    wait_for(rig, 1);
    return op->result;
}

static struct pst_disk_op transfer(uint8_t verb, uint32_t file, uint64_t offset, struct iovec *piece)
{
    return (struct pst_disk_op){
        .verb = verb, .file = file, .offset = offset, .bytes = piece->iov_len, .iov = piece, .iov_count = 1};
}

/* A turn that is over at once hands one over, and the queue says that there are more. */
static void a_poll_hands_over_for_a_turn(void **state)
{
    struct pst_disk_op ops[PIECES];
    struct iovec iov[PIECES];
    struct pst_list done;
    struct rig rig;
    uint32_t ended = 0;

    set_up(&rig, *state, PIECES);
    pst_list_init(&done);
    for (int i = 0; i < PIECES; i++) {
        iov[i] = (struct iovec){rig.memory + (uint64_t)i * BLOCK, BLOCK};
        ops[i] = transfer(PST_DISK_WRITE, 0, (uint64_t)i * BLOCK, &iov[i]);
        assert_int_equal(pst_disk_submit(rig.disk, &ops[i]), 0);
    }
    for (int i = 0; i < PIECES; i++) {
        const struct pst_turn turn = pst_turn_begin(pst_now_ns, 0);

        assert_true(pst_disk_has_more(rig.disk));
        ended += pst_disk_poll(rig.disk, &turn, &done);
    }
    assert_false(pst_disk_has_more(rig.disk));
    wait_for(&rig, PIECES - ended);
    tear_down(&rig);
}

/* Two files in pieces of many sizes, all underway at once; then both read as a whole. */
static void what_was_written_is_read(void **state)
{
    struct pst_disk_op ops[2 * PIECES];
    struct iovec iov[2 * PIECES], whole;
    struct rig rig;
    uint64_t at[2] = {0, 0};

    set_up(&rig, *state, 2 * PIECES);
    for (int i = 0; i < 2 * PIECES; i++) {
        uint64_t bytes = i >= 2 * PIECES - 2 ? FILE_BYTES - at[i % 2] : (uint64_t)(i % 7 + 1) * BLOCK;

        iov[i] = (struct iovec){rig.memory + at[i % 2], bytes};
        ops[i] = transfer(PST_DISK_WRITE, (uint32_t)i % 2, at[i % 2], &iov[i]);
        at[i % 2] += bytes;
        assert_int_equal(pst_disk_submit(rig.disk, &ops[i]), 0);
    }
    assert_int_equal(pst_disk_submit(rig.disk, &ops[0]), -EBUSY);
    assert_int_equal(pst_disk_underway(rig.disk), 2 * PIECES);
    wait_for(&rig, 2 * PIECES);
    for (int i = 0; i < 2 * PIECES; i++)
        assert_int_equal(ops[i].result, 0);
    for (uint32_t file = 0; file < 2; file++) {
        whole = (struct iovec){rig.memory + FILE_BYTES, FILE_BYTES};
        memset(whole.iov_base, 0, FILE_BYTES);
        ops[0] = transfer(PST_DISK_READ, file, 0, &whole);
        assert_int_equal(carry_out(&rig, &ops[0]), 0);
        assert_memory_equal(whole.iov_base, rig.memory, FILE_BYTES);
    }
    tear_down(&rig);
}

/* Pieces of memory in another order than the file has them, cut at any number of bytes by the system. */
static void what_is_cut_short_is_gone_on_with(void **state)
{
    struct iovec iov[PIECES], whole;
    struct pst_disk_op op;
    struct rig rig;
    uint64_t total = 0;

    set_up(&rig, *state, 4);
    for (uint64_t i = 0; i < PIECES; i++) {
        iov[i] = (struct iovec){rig.memory + (PIECES - 1 - i) * 4 * BLOCK, (i % 4 + 1) * BLOCK};
        total += iov[i].iov_len;
    }
    assert_int_equal(pst_faults_arm("disk_short:per_million=500000,seed=3"), 0);
    op = (struct pst_disk_op){
        .verb = PST_DISK_WRITE, .offset = 8 * BLOCK, .bytes = total - BLOCK, .iov = iov, .iov_count = PIECES};
    assert_int_equal(carry_out(&rig, &op), 0);
    whole = (struct iovec){rig.memory + FILE_BYTES, total};
    op = transfer(PST_DISK_READ, 0, 8 * BLOCK, &whole);
    assert_int_equal(carry_out(&rig, &op), 0);
    assert_true(pst_fault_hits(PST_FAULT_disk_short) > 2);
    for (uint64_t i = 0, at = 0; i < PIECES; at += iov[i++].iov_len) {
        uint64_t bytes = pst_min(iov[i].iov_len, total - BLOCK - at);

        assert_memory_equal(rig.memory + FILE_BYTES + at, iov[i].iov_base, bytes);
    }
    tear_down(&rig);
}

static void failures_are_told_apart(void **state)
{
    struct iovec piece;
    struct pst_disk_op op;
    struct rig rig;

    set_up(&rig, *state, 4);
    piece = (struct iovec){rig.memory, BLOCK};
    pst_faults_arm("disk_write_enospc:nth=1,disk_sync_eio:nth=1,disk_read_eio:nth=1");
    op = transfer(PST_DISK_WRITE, 0, 0, &piece);
    assert_int_equal(carry_out(&rig, &op), -ENOSPC);
    op = (struct pst_disk_op){.verb = PST_DISK_SYNC};
    assert_int_equal(carry_out(&rig, &op), -EIO);
    op = (struct pst_disk_op){.verb = PST_DISK_SYNC};
    assert_int_equal(carry_out(&rig, &op), 0);
    op = transfer(PST_DISK_READ, 0, 0, &piece);
    assert_int_equal(carry_out(&rig, &op), -EIO);
    pst_faults_arm("disk_write_eio:nth=1");
    op = transfer(PST_DISK_WRITE, 1, 0, &piece);
    assert_int_equal(carry_out(&rig, &op), -EIO);
    op = transfer(PST_DISK_READ, 1, FILE_BYTES, &piece); /* behind the end */
    assert_int_equal(carry_out(&rig, &op), -EIO);
    tear_down(&rig);
}

static void bad_options_are_refused(void **state)
{
    struct pst_disk_options options = {.driver = "tape", .depth = 1};
    struct pst_disk *disk = NULL;
    const char *fault = "";

    (void)state;
    assert_int_equal(pst_disk_open(&options, &disk, &fault), -EINVAL);
    assert_non_null(strstr(fault, "tape"));
    options = (struct pst_disk_options){.depth = PST_DISK_DEPTH_MAX + 1};
    assert_int_equal(pst_disk_open(&options, &disk, &fault), -EINVAL);
    options.depth = 0;
    assert_int_equal(pst_disk_open(&options, &disk, &fault), -EINVAL);
    assert_null(disk);
}

/* io_uring_setup() fails with EPERM from here on, as where an administrator has forbidden it. */
static void forbid_io_uring(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {pst_count_of(filter), filter};

    pst_assert(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    pst_assert(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static int without_io_uring(void)
{
    struct rig rig;
    const char *fault = "";
    struct pst_disk *named = NULL;
    bool good;

    forbid_io_uring();
    set_up(&rig, NULL, 4);
    good =
        strcmp(pst_disk_driver(rig.disk), "posix") == 0 &&
        strstr(pst_disk_note(rig.disk), "io_uring_disabled") &&
        pst_disk_open(&(struct pst_disk_options){.driver = "io_uring", .depth = 1}, &named, &fault) == -EPERM;
    tear_down(&rig);
    return good ? 0 : 1;
}

/* Memory beyond what may be locked cannot be registered: transfers go on without. */
static int without_memlock(void)
{
    struct rlimit little = {1 << 20, 1 << 20}; /* for the ring, not for the region */
    struct pst_disk_op op;
    struct iovec piece;
    struct rig rig;
    bool good;

    setrlimit(RLIMIT_MEMLOCK, &little);
    /* What a user's processes lock is counted together: one that has no other. */
    if (geteuid() == 0 && seteuid((uid_t)(1 << 24) + (uid_t)getpid()) < 0)
        return 1;
    set_up(&rig, "io_uring", 4);
    piece = (struct iovec){rig.memory, BLOCK};
    op = transfer(PST_DISK_WRITE, 0, 0, &piece);
    good = strstr(pst_disk_note(rig.disk), "RLIMIT_MEMLOCK") && carry_out(&rig, &op) == 0;
    tear_down(&rig);
    return good ? 0 : 1;
}

static int in_child(int (*run)(void))
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(run());
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void missing_rights_are_told_and_lived_without(void **state)
{
    (void)state;
    assert_int_equal(in_child(without_io_uring), 0);
    assert_int_equal(in_child(without_memlock), 0);
}

/* Of a hundred blocks that were not synced a power cut leaves some, some in part; what was synced stays. */
static void a_power_cut_forgets_what_was_not_synced(void **state)
{
    enum { BLOCKS = 100 };
    uint32_t whole = 0, gone = 0, torn = 0;
    struct pst_disk_op op;
    struct iovec piece;
    struct rig rig;

    (void)state;
    set_up(&rig, "simulated:seed=5", 8);
    piece = (struct iovec){rig.memory, BLOCKS * BLOCK};
    op = transfer(PST_DISK_WRITE, 0, 0, &piece);
    assert_int_equal(carry_out(&rig, &op), 0);
    op = (struct pst_disk_op){.verb = PST_DISK_SYNC};
    assert_int_equal(carry_out(&rig, &op), 0);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        piece = (struct iovec){rig.memory + i * BLOCK, BLOCK};
        op = transfer(PST_DISK_WRITE, 1, i * BLOCK, &piece);
        assert_int_equal(carry_out(&rig, &op), 0);
        memset(rig.memory + FILE_BYTES, 0, BLOCK);
        piece.iov_base = rig.memory + FILE_BYTES;
        op = transfer(PST_DISK_READ, 1, i * BLOCK, &piece);
        assert_int_equal(carry_out(&rig, &op), 0);
        assert_memory_equal(rig.memory + FILE_BYTES, rig.memory + i * BLOCK, BLOCK);
    }
    pst_simulated_cut(9);
    assert_int_equal(carry_out(&rig, &op), -EIO);
    pst_simulated_restore();
    for (uint64_t i = 0; i < BLOCKS; i++) {
        static const uint8_t zeros[BLOCK];
        const uint8_t *was = rig.memory + i * BLOCK, *is = rig.memory + FILE_BYTES;

        assert_int_equal(pread(rig.fds[0], rig.memory + FILE_BYTES, BLOCK, (off_t)(i * BLOCK)), BLOCK);
        assert_memory_equal(is, was, BLOCK);
        assert_int_equal(pread(rig.fds[1], rig.memory + FILE_BYTES, BLOCK, (off_t)(i * BLOCK)), BLOCK);
        whole += memcmp(is, was, BLOCK) == 0;
        gone += memcmp(is, zeros, BLOCK) == 0;
        torn += memcmp(is, was, BLOCK) != 0 && memcmp(is, zeros, BLOCK) != 0;
    }
    assert_true(whole > 10 && gone > 10 && torn > 10);
    tear_down(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_EACH(a_poll_hands_over_for_a_turn),
        OVER_EACH(what_was_written_is_read),
        OVER_EACH(what_is_cut_short_is_gone_on_with),
        OVER_EACH(failures_are_told_apart),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(missing_rights_are_told_and_lived_without),
        cmocka_unit_test(a_power_cut_forgets_what_was_not_synced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
