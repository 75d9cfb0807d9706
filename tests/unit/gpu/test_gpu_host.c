/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of this host between two processes: the descriptor travels, and nobody can take a page away. */
#include "lib/cm.h"

#include "gpu/gpu.h"
#include "mem/limit.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { BYTES = 3 * 4096 };

static struct pst_gpu *host;

static int open_host(void **state)
{
    char fault[PST_FAULT_BYTES];

    (void)state;
    return pst_gpu_host.open(0, &host, fault);
}

/* Whether the kernel still has the file's pages: someone has it open or mapped. */
static bool is_mapped(ino_t inode)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], wanted[32];
    bool found = false;

    assert_non_null(maps);
    snprintf(wanted, sizeof(wanted), " %lu ", (unsigned long)inode);
    while (fgets(line, sizeof(line), maps))
        found = found || strstr(line, wanted);
    fclose(maps);
    return found;
}

static void send_fd(int socket, int fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec byte = {.iov_base = "x", .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

    control.head = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    assert_int_equal(sendmsg(socket, &message, 0), 1);
}

static int receive_fd(int socket)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte;
    struct iovec in = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    int fd;

    if (recvmsg(socket, &message, 0) != 1)
        return -1;
    memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
    return fd;
}

/* The other process: reads what was written, writes, and tries to cut the file short. Its exit status is 0.
 */
static int other_process(int socket)
{
    struct pst_gpu_handle handle = {.kind = PST_GPU_HOST, .memory_bytes = BYTES};
    struct pst_gpu_memory *memory;
    int fd = receive_fd(socket);
    char got[6];

    if (fd < 0 || pst_gpu_host.import_handle(host, &handle, fd, true, &memory) < 0)
        return 1;
    if (ftruncate(fd, 0) == 0 || errno != EPERM || ftruncate(fd, 2 * BYTES) == 0)
        return 2;
    close(fd);
    if (pst_gpu_copy_out(memory, 4096, got, 6) < 0 || memcmp(got, "hello", 6) != 0)
        return 3;
    if (pst_gpu_copy_in(memory, BYTES - 6, "there", 6) < 0 || pst_gpu_settle(host) < 0)
        return 4;
    pst_gpu_give(memory);
    return 0;
}

static void memory_of_another_process(void **state)
{
    struct pst_gpu_memory *memory;
    struct pst_gpu_handle handle;
    int ends[2], fd = -1, status;
    char got[6] = "";
    pid_t child;

    (void)state;
    assert_int_equal(pst_gpu_host.allocate(host, BYTES, &memory), 0);
    assert_int_equal(pst_gpu_copy_in(memory, 4096, "hello", 6), 0);
    assert_int_equal(pst_gpu_host.export_handle(memory, &handle, &fd), 0);
    assert_int_equal(handle.memory_bytes, BYTES);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    child = fork();
    if (child == 0)
        _exit(other_process(ends[1]));
    send_fd(ends[0], fd);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(pst_gpu_copy_out(memory, BYTES - 6, got, 6), 0);
    assert_string_equal(got, "there");
    assert_null(pst_gpu_give(memory));
    close(ends[0]);
    close(ends[1]);
}

static void an_import_outlives_its_owner(void **state)
{
    struct pst_gpu_memory *memory, *import;
    struct pst_gpu_handle handle;
    struct stat st;
    char got[6];
    int fd;

    (void)state;
    assert_int_equal(pst_gpu_host.allocate(host, BYTES, &memory), 0);
    assert_int_equal(pst_gpu_copy_in(memory, 0, "stays", 6), 0);
    assert_int_equal(pst_gpu_host.export_handle(memory, &handle, &fd), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pst_gpu_host.import_handle(host, &handle, fd, false, &import), 0);
    assert_null(pst_gpu_give(memory));
    assert_true(is_mapped(st.st_ino));
    assert_int_equal(pst_gpu_copy_out(import, 0, got, 6), 0);
    assert_string_equal(got, "stays");
    assert_int_equal(pst_gpu_copy_in(import, 0, "other", 6), -EPERM);
    assert_int_equal(pst_gpu_host.export_handle(import, &handle, &fd), -EINVAL);
    assert_null(pst_gpu_give(import));
    assert_false(is_mapped(st.st_ino));
}

static int sealed(int flags, int seals, off_t bytes)
{
    int fd = memfd_create("test", MFD_CLOEXEC | flags);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    assert_true(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void refuse(int fd, uint64_t bytes, bool writable, int error)
{
    struct pst_gpu_handle handle = {.kind = PST_GPU_HOST, .memory_bytes = bytes};
    struct pst_gpu_memory *memory = NULL;

    assert_int_equal(pst_gpu_host.import_handle(host, &handle, fd, writable, &memory), error);
    assert_null(memory);
    close(fd);
}

static void what_is_not_imported(void **state)
{
    char path[] = "/tmp/test-gpu-host-XXXXXX", name[64];
    struct pst_gpu_memory *memory = NULL;
    struct pst_gpu_handle cuda = {.kind = PST_GPU_CUDA, .memory_bytes = 1};
    int ends[2], fd;

    (void)state;
    refuse(sealed(0, 0, BYTES), BYTES, false, -EPERM);                           /* cannot be sealed */
    refuse(sealed(MFD_ALLOW_SEALING, 0, BYTES), BYTES, false, -EPERM);           /* was not */
    refuse(sealed(MFD_ALLOW_SEALING, F_SEAL_GROW, BYTES), BYTES, false, -EPERM); /* against another thing */
    refuse(sealed(MFD_ALLOW_SEALING, F_SEAL_SHRINK, BYTES), BYTES + 1, false, -ERANGE);
    refuse(sealed(MFD_ALLOW_SEALING, F_SEAL_SHRINK, BYTES), BYTES - 1, false, -ERANGE);
    refuse(sealed(MFD_ALLOW_SEALING, F_SEAL_SHRINK, BYTES), UINT64_MAX, false, -ERANGE);
    refuse(sealed(MFD_ALLOW_SEALING, F_SEAL_SHRINK, 0), 0, false, -EINVAL);
    refuse(sealed(MFD_ALLOW_SEALING, F_SEAL_SHRINK | F_SEAL_WRITE, BYTES), BYTES, true, -EPERM);
    fd = sealed(MFD_ALLOW_SEALING, F_SEAL_SHRINK, BYTES);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    refuse(open(name, O_RDONLY | O_CLOEXEC), BYTES, true, -EPERM); /* read-only, and to be written */
    close(fd);
    fd = mkstemp(path);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    refuse(fd, BYTES, false, -EPERM); /* a file of a disk */
    unlink(path);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    close(ends[1]);
    refuse(ends[0], BYTES, false, -EPERM);
    refuse(-1, BYTES, false, -EBADF);
    assert_int_equal(pst_gpu_host.import_handle(host, &cuda, -1, false, &memory), -EINVAL);
}

/* Files are bounded while it is asked for too much: even an allocation that checks nothing gets no memory. */
static void memory_that_cannot_be(void **state)
{
    struct rlimit bound, before;
    struct pst_gpu_memory *memory = NULL;
    struct pst_limit left;

    (void)state;
    pst_limit_read("", &left);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    bound = (struct rlimit){.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &bound), 0);
    assert_int_equal(pst_gpu_host.allocate(host, 0, &memory), -EINVAL);
    assert_int_equal(pst_gpu_host.allocate(host, UINT64_MAX, &memory), -ENOMEM);
    assert_int_equal(pst_gpu_host.allocate(host, INT64_MAX, &memory), -ENOMEM);
    if (left.left_bytes < UINT64_MAX / 4)
        assert_int_equal(pst_gpu_host.allocate(host, 2 * left.left_bytes, &memory), -ENOMEM);
    assert_int_equal(pst_gpu_host.allocate(host, 2 << 20, &memory), -ENOMEM); /* the bound on files */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_null(memory);
    assert_null(pst_gpu_give(NULL));
    assert_null(pst_gpu_close(NULL));
}

static void events_of_copies(void **state)
{
    struct pst_gpu_event *event;

    (void)state;
    assert_int_equal(pst_gpu_host.record(host, &event), 0);
    assert_int_equal(pst_gpu_host.event_is_done(event), 1);
    assert_int_equal(pst_gpu_host.event_wait(event), 0);
    pst_gpu_host.event_close(event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_another_process), cmocka_unit_test(an_import_outlives_its_owner),
        cmocka_unit_test(what_is_not_imported),      cmocka_unit_test(memory_that_cannot_be),
        cmocka_unit_test(events_of_copies),
    };

    return cmocka_run_group_tests(tests, open_host, NULL);
}
