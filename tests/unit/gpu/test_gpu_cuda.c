/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU's memory through the driver's calls. TEST_CUDA is "fake" if tests/unit/gpu/fake_cuda.c stands in for
 * the driver, "none" if there must not be one. A driver that has begun stays, so the test of one that does
 * not begin comes first.
 */
#include "lib/cm.h"

#include "gpu/gpu.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>

enum { BYTES = 4096 };

/* Whether the fake is what was loaded, and what of it is still in use. */
static int fake_left(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*left)(void) = NULL;
    void *call = driver ? dlsym(driver, "fake_cuda_left") : NULL;

    assert_non_null(call);
    memcpy(&left, &call, sizeof(left));
    dlclose(driver);
    return left();
}

static struct pst_gpu *device(void)
{
    char fault[PST_FAULT_BYTES] = "";
    struct pst_gpu *gpu;
    int r = pst_gpu_cuda.open(0, &gpu, fault);

    if (r < 0)
        print_message("# %s\n", fault);
    assert_int_equal(r, 0);
    return gpu;
}

static void without_a_driver(void **state)
{
    char fault[PST_FAULT_BYTES] = "";
    struct pst_gpu *gpu = NULL;

    (void)state;
    assert_int_equal(pst_gpu_cuda.open(0, &gpu, fault), -ENODEV);
    assert_non_null(strstr(fault, "no CUDA here: libcuda.so.1"));
    assert_null(gpu);
}

static void without_a_device(void **state)
{
    char fault[PST_FAULT_BYTES] = "";
    struct pst_gpu *gpu = NULL;

    (void)state;
    setenv("FAKE_CUDA_NO_DEVICE", "1", 1);
    assert_int_equal(pst_gpu_cuda.open(0, &gpu, fault), -ENODEV);
    unsetenv("FAKE_CUDA_NO_DEVICE");
    assert_string_equal(fault, "no CUDA here: no CUDA-capable device is detected");
    assert_null(gpu);
}

static void copies_wait_for_events(void **state)
{
    struct pst_gpu_memory *memory, *other;
    struct pst_gpu_event *event;
    struct pst_gpu *gpu;
    char got[6] = "", fault[PST_FAULT_BYTES] = "";

    (void)state;
    gpu = device();
    assert_int_equal(pst_gpu_cuda.allocate(gpu, BYTES, &memory), 0);
    assert_int_equal(pst_gpu_cuda.allocate(gpu, BYTES, &other), 0);
    assert_int_equal(pst_gpu_copy_in(memory, 100, "hello", 6), 0);
    assert_int_equal(pst_gpu_copy(other, 200, memory, 100, 6), 0);
    assert_int_equal(pst_gpu_copy_out(other, 200, got, 6), 0);
    assert_int_equal(pst_gpu_cuda.record(gpu, &event), 0);
    assert_int_equal(pst_gpu_cuda.event_is_done(event), 0);
    assert_string_equal(got, "");
    assert_int_equal(pst_gpu_cuda.event_wait(event), 0);
    assert_string_equal(got, "hello");
    assert_int_equal(pst_gpu_cuda.event_is_done(event), 1);
    pst_gpu_cuda.event_close(event);
    assert_int_equal(pst_gpu_copy_in(memory, BYTES - 5, "hello", 6), -ERANGE);
    assert_int_equal(pst_gpu_cuda.open(2, &gpu, fault), -ENODEV);
    assert_non_null(strstr(fault, "device 2"));
    assert_int_equal(pst_gpu_cuda.allocate(gpu, 0, &memory), -EINVAL);
    assert_int_equal(pst_gpu_cuda.allocate(gpu, 1ull << 60, &memory), -ENOMEM);
    assert_null(pst_gpu_give(memory));
    assert_null(pst_gpu_give(other));
    assert_null(pst_gpu_close(gpu));
    assert_int_equal(fake_left(), 0);
}

/* In another process. Return: 0, or the step that went wrong. */
static int read_from_handle(struct pst_gpu_handle handle)
{
    struct pst_gpu_memory *memory;
    struct pst_gpu *gpu;
    char got[6] = "", fault[PST_FAULT_BYTES];

    if (pst_gpu_cuda.open(0, &gpu, fault) < 0)
        return 1;
    handle.memory_bytes = BYTES + 1; /* more than the driver knows of */
    if (pst_gpu_cuda.import_handle(gpu, &handle, -1, false, &memory) != -ERANGE)
        return 2;
    handle.memory_bytes = BYTES;
    if (pst_gpu_cuda.import_handle(gpu, &handle, -1, false, &memory) != 0)
        return 3;
    if (pst_gpu_copy_out(memory, 9, got, 6) < 0 || pst_gpu_settle(gpu) < 0 || strcmp(got, "shown") != 0)
        return 4;
    if (pst_gpu_copy_in(memory, 9, "other", 6) != -EPERM ||
        pst_gpu_cuda.export_handle(memory, &handle, &(int){0}) != -EINVAL)
        return 5;
    pst_gpu_give(memory);
    memset(handle.cuda, 'x', sizeof(handle.cuda));
    if (pst_gpu_cuda.import_handle(gpu, &handle, -1, false, &memory) != -ESTALE)
        return 6;
    pst_gpu_close(gpu);
    return fake_left() == 0 ? 0 : 7;
}

static void memory_of_another_process(void **state)
{
    struct pst_gpu_memory *memory;
    struct pst_gpu_handle handle;
    struct pst_gpu *gpu;
    int fd = 0, ends[2], status;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    child = fork(); /* before the driver is loaded, as a driver wants it */
    if (child == 0) {
        close(ends[1]); /* else it would wait for itself if the parent ends */
        _exit(read(ends[0], &handle, sizeof(handle)) == sizeof(handle) ? read_from_handle(handle) : 9);
    }
    gpu = device();
    assert_int_equal(pst_gpu_cuda.allocate(gpu, BYTES, &memory), 0);
    assert_int_equal(pst_gpu_copy_in(memory, 9, "shown", 6), 0);
    assert_int_equal(pst_gpu_settle(gpu), 0);
    assert_int_equal(pst_gpu_cuda.export_handle(memory, &handle, &fd), 0);
    assert_int_equal(fd, -1);
    assert_int_equal(write(ends[1], &handle, sizeof(handle)), sizeof(handle));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
    handle.kind = PST_GPU_HOST;
    assert_int_equal(pst_gpu_cuda.import_handle(gpu, &handle, -1, false, &memory), -EINVAL);
    assert_null(pst_gpu_give(memory));
    assert_null(pst_gpu_close(gpu));
    assert_int_equal(fake_left(), 0);
    close(ends[0]);
    close(ends[1]);
}

static void memory_is_found_by_its_address(void **state)
{
    struct pst_gpu *gpu = device();
    struct pst_gpu_memory *memory, *found = NULL;
    char got[6] = "", *at = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *call = dlsym(driver, "fake_cuda_last");
    void *(*last)(void);

    (void)state;
    memcpy(&last, &call, sizeof(last));
    assert_int_equal(pst_gpu_cuda.allocate(gpu, BYTES, &memory), 0);
    at = last();
    assert_int_equal(pst_gpu_find(got, sizeof(got), &found), -ENOENT);
    assert_int_equal(pst_gpu_find(at + 100, BYTES - 99, &found), -ERANGE);
    assert_int_equal(pst_gpu_find(at + 100, BYTES - 100, &found), 0);
    assert_int_equal(pst_gpu_copy_in(found, 0, "found", 6), 0);
    assert_int_equal(pst_gpu_settle(found->gpu), 0);
    assert_int_equal(pst_gpu_copy_in(found, BYTES - 105, "found", 6), -ERANGE);
    assert_null(pst_gpu_lose(found));
    assert_int_equal(pst_gpu_copy_out(memory, 100, got, 6), 0);
    assert_int_equal(pst_gpu_settle(gpu), 0);
    assert_string_equal(got, "found");
    assert_null(pst_gpu_give(memory));
    assert_null(pst_gpu_close(gpu));
    assert_int_equal(fake_left(), 0);
    dlclose(driver);
}

static void memory_of_the_caller_is_locked(void **state)
{
    struct pst_gpu *gpu = device();
    char memory[64];

    (void)state;
    assert_int_equal(pst_gpu_cuda.lock(gpu, memory, sizeof(memory)), 0);
    assert_int_equal(pst_gpu_cuda.lock(gpu, NULL, 0), -EINVAL);
    assert_true(fake_left() > 0);
    pst_gpu_cuda.unlock(gpu, memory);
    assert_null(pst_gpu_close(gpu));
    assert_int_equal(fake_left(), 0);
}

/* The driver opens it once, and it stays until the last of them has given it back. */
static void imports_of_one_memory_share_it(void **state)
{
    struct pst_gpu_memory *memory[2];
    struct pst_gpu_handle handle;
    struct pst_gpu *gpu;
    int ends[2], status, fd;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        char fault[PST_FAULT_BYTES], got[6] = "";

        close(ends[1]);
        if (read(ends[0], &handle, sizeof(handle)) != sizeof(handle) || pst_gpu_cuda.open(0, &gpu, fault) < 0)
            _exit(1);
        for (int i = 0; i < 2; i++)
            if (pst_gpu_cuda.import_handle(gpu, &handle, -1, i == 1, &memory[i]) < 0)
                _exit(2);
        pst_gpu_give(memory[0]);
        if (pst_gpu_copy_in(memory[1], 0, "again", 6) < 0 || pst_gpu_copy_out(memory[1], 0, got, 6) < 0 ||
            pst_gpu_settle(gpu) < 0 || strcmp(got, "again") != 0)
            _exit(3);
        pst_gpu_give(memory[1]);
        pst_gpu_close(gpu);
        _exit(fake_left() == 0 ? 0 : 4);
    }
    gpu = device();
    assert_int_equal(pst_gpu_cuda.allocate(gpu, BYTES, &memory[0]), 0);
    assert_int_equal(pst_gpu_cuda.export_handle(memory[0], &handle, &fd), 0);
    assert_int_equal(write(ends[1], &handle, sizeof(handle)), sizeof(handle));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_null(pst_gpu_give(memory[0]));
    assert_null(pst_gpu_close(gpu));
    close(ends[0]);
    close(ends[1]);
}

/* Every second byte of one into the host's memory without gaps, and back. */
static void tensors_go_between_the_host_and_a_gpu(void **state)
{
    struct pst_gpu_tensor apart = {
        .dtype = "uint8", .element_bytes = 1, .rank = 1, .shape = {3}, .strides = {2}};
    struct pst_gpu_tensor dense = apart;
    struct pst_gpu_memory *there, *here;
    struct pst_gpu *gpu = device(), *host;
    char got[6] = "", fault[PST_FAULT_BYTES];

    (void)state;
    dense.strides[0] = 1;
    dense.offset_bytes = 10;
    assert_int_equal(pst_gpu_host.open(0, &host, fault), 0);
    assert_int_equal(pst_gpu_cuda.allocate(gpu, BYTES, &there), 0);
    assert_int_equal(pst_gpu_host.allocate(host, BYTES, &here), 0);
    assert_int_equal(pst_gpu_copy_in(there, 0, "a-b-c", 6), 0);
    assert_int_equal(pst_gpu_copy_tensor(here, &dense, there, &apart), 0);
    assert_int_equal(pst_gpu_settle(gpu), 0);
    assert_memory_equal(pst_gpu_host_at(here) + 10, "abc", 3);
    memcpy(pst_gpu_host_at(here) + 10, "xyz", 3);
    assert_int_equal(pst_gpu_copy_tensor(there, &apart, here, &dense), 0);
    assert_int_equal(pst_gpu_copy_out(there, 0, got, 6), 0);
    assert_int_equal(pst_gpu_settle(gpu), 0);
    assert_string_equal(got, "x-y-z");
    assert_null(pst_gpu_give(here));
    assert_null(pst_gpu_give(there));
    assert_null(pst_gpu_close(gpu));
    assert_int_equal(fake_left(), 0);
}

int main(void)
{
    const struct CMUnitTest none[] = {cmocka_unit_test(without_a_driver)};
    const struct CMUnitTest fake[] = {
        cmocka_unit_test(without_a_device),
        cmocka_unit_test(memory_of_another_process),
        cmocka_unit_test(imports_of_one_memory_share_it),
        cmocka_unit_test(copies_wait_for_events),
        cmocka_unit_test(tensors_go_between_the_host_and_a_gpu),
        cmocka_unit_test(memory_is_found_by_its_address),
        cmocka_unit_test(memory_of_the_caller_is_locked),
    };

    return strcmp(getenv("TEST_CUDA"), "fake") == 0 ? cmocka_run_group_tests(fake, NULL, NULL)
                                                    : cmocka_run_group_tests(none, NULL, NULL);
}
