/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nccl.c: libnccl.so.2 for machines without a GPU, beside fake_cuda.c: the calls that gpu/cuda uses,
 * between processes of one host. A communicator is a file of memory through which a broadcast goes piece by
 * piece. FAKE_NCCL in the environment: "error", "crash" or "hang" is what the first broadcast does; "alone"
 * what the beginning does.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK = 0, SYSTEM_ERROR = 2, BAD_ARGUMENT = 4, BAD_USE = 5 };
enum { PIECE_BYTES = 1 << 20, NAP_US = 20, UINT8 = 1 };

struct id {
    char bytes[128];
};

struct shared {
    atomic_int joined, turn, read;
    char piece[PIECE_BYTES];
};

struct comm {
    struct shared *shared;
    int rank, size, turn;
};

#pragma GCC visibility push(default)

#define CALL(name, parameters)                                                                               \
    int name parameters;                                                                                     \
    int name parameters

#define TEXT(name, parameters)                                                                               \
    const char *name parameters;                                                                             \
    const char *name parameters

static int is_told_to(const char *what)
{
    const char *told = getenv("FAKE_NCCL");

    return told && strcmp(told, what) == 0;
}

static void hang(void)
{
    for (;;)
        pause();
}

/* Does what was queued on the stream before, as a stream would. Returns whether the caller has a context. */
static int do_what_was_queued(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *call;
    int (*flush)(void) = NULL;

    call = driver ? dlsym(driver, "fake_cuda_flush") : NULL;
    if (!call)
        return 0;
    memcpy(&flush, &call, sizeof(flush));
    dlclose(driver);
    return flush();
}

static struct shared *map(const char *name)
{
    int fd = open(name, O_RDWR);
    void *at;

    if (fd < 0)
        return NULL;
    at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static void wait_for(const atomic_int *number, int value)
{
    while (atomic_load(number) != value)
        usleep(NAP_US);
}

/* A process that says too early that it is done, that closes its side and stays, that says too much. */
__attribute__((constructor)) static void spoil(void)
{
    static const char early[] = "{\"done\":1}\n", much[] = "{}\n";

    if (is_told_to("early"))
        (void)!write(0, early, sizeof(early) - 1);
    if (is_told_to("close")) {
        close(0);
        hang();
    }
    while (is_told_to("flood"))
        (void)!write(0, much, sizeof(much) - 1);
}

CALL(ncclGetUniqueId, (struct id * id))
{
    int fd = memfd_create("penstock-fake-nccl", MFD_CLOEXEC); /* goes with this process, which serves it */

    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) < 0)
        return SYSTEM_ERROR;
    memset(id, 0, sizeof(*id));
    snprintf(id->bytes, sizeof(id->bytes), "/proc/%d/fd/%d", (int)getpid(), fd);
    return OK;
}

CALL(ncclCommInitRank, (void **comm, int size, struct id id, int rank))
{
    struct comm *made = calloc(1, sizeof(*made));

    if (!made || rank < 0 || rank >= size || !do_what_was_queued())
        return free(made), BAD_ARGUMENT;
    if (is_told_to("alone"))
        hang();
    *made = (struct comm){.shared = map(id.bytes), .rank = rank, .size = size};
    if (!made->shared)
        return free(made), SYSTEM_ERROR;
    atomic_fetch_add(&made->shared->joined, 1);
    while (atomic_load(&made->shared->joined) < size)
        usleep(NAP_US);
    *comm = made;
    return OK;
}

static void send_piece(struct comm *comm, const char *from, size_t bytes)
{
    memcpy(comm->shared->piece, from, bytes);
    atomic_store(&comm->shared->read, 0);
    atomic_store(&comm->shared->turn, ++comm->turn);
    wait_for(&comm->shared->read, comm->size - 1);
}

static void receive_piece(struct comm *comm, char *to, size_t bytes)
{
    wait_for(&comm->shared->turn, ++comm->turn);
    memcpy(to, comm->shared->piece, bytes);
    atomic_fetch_add(&comm->shared->read, 1);
}

CALL(ncclBroadcast, (const void *from, void *to, size_t count, int type, int root, void *comm, void *stream))
{
    struct comm *one = comm;

    if (from != to || type != UINT8 || root < 0 || root >= one->size || !stream)
        return BAD_ARGUMENT;
    if (!do_what_was_queued())
        return BAD_USE;
    if (is_told_to("error"))
        return SYSTEM_ERROR;
    if (is_told_to("crash"))
        abort();
    if (is_told_to("hang") || (is_told_to("fork") && fork() == 0))
        hang();
    for (size_t at = 0; at < count; at += PIECE_BYTES) {
        size_t bytes = count - at < PIECE_BYTES ? count - at : PIECE_BYTES;

        if (one->rank == root)
            send_piece(one, (const char *)from + at, bytes);
        else
            receive_piece(one, (char *)to + at, bytes);
    }
    return OK;
}

CALL(ncclCommGetAsyncError, (void *comm, int *result))
{
    *result = OK;
    return comm ? OK : BAD_ARGUMENT;
}

CALL(ncclCommDestroy, (void *comm))
{
    struct comm *one = comm;

    munmap(one->shared, sizeof(*one->shared));
    free(one);
    return do_what_was_queued() ? OK : BAD_USE;
}

CALL(ncclCommAbort, (void *comm))
{
    return ncclCommDestroy(comm);
}

TEXT(ncclGetErrorString, (int result))
{
    return result == SYSTEM_ERROR ? "unhandled system error" : result == OK ? "no error" : "invalid usage";
}

TEXT(ncclGetLastError, (void *comm))
{
    return comm && is_told_to("error") ? "told to fail" : "";
}
