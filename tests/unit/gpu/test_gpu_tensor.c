/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "gpu/gpu.h"

#include <string.h>

static struct pst_gpu_tensor tensor_of(const char *dtype, uint64_t offset, uint32_t rank,
                                       const uint64_t *shape, const int64_t *strides)
{
    struct pst_gpu_tensor tensor = {.rank = rank, .offset_bytes = offset};

    assert_int_equal(pst_gpu_tensor_set_dtype(&tensor, dtype), 0);
    for (uint32_t i = 0; i < rank; i++) {
        tensor.shape[i] = shape[i];
        tensor.strides[i] = strides[i];
    }
    return tensor;
}

static void dtypes_have_names(void **state)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } known[] = {
        {"torch.float32", 4},   {"float32", 4},         {"torch.bool", 1},          {"bfloat16", 2},
        {"complex128", 16},     {"torch.int64", 8},     {"torch.float8_e4m3fn", 1}, {"float8_e5m2", 1},
        {"torch.complex32", 4}, {"float4_e2m1fn_x2", 1}};
    static const char *const unknown[] = {
        "",       "torch.",        "torch.float31", "float", "float32 ", "Float32", "torch.torch.float32",
        "object", "datetime64[ns]"};
    struct pst_gpu_tensor tensor;

    (void)state;
    for (size_t i = 0; i < pst_count_of(known); i++) {
        assert_int_equal(pst_gpu_tensor_set_dtype(&tensor, known[i].name), 0);
        assert_int_equal(tensor.element_bytes, known[i].bytes);
        assert_null(strchr(tensor.dtype, '.'));
    }
    for (size_t i = 0; i < pst_count_of(unknown); i++)
        assert_int_equal(pst_gpu_tensor_set_dtype(&tensor, unknown[i]), -EOPNOTSUPP);
}

static void spans(void **state)
{
    static const struct {
        uint64_t offset;
        uint32_t rank;
        uint64_t shape[3];
        int64_t strides[3];
        uint64_t memory;
        int result;
        uint64_t first, end;
    } cases[] = {
        {0, 0, {0}, {0}, 4, 0, 0, 4},                            /* one number */
        {4, 0, {0}, {0}, 8, 0, 4, 8},                            /* with an offset */
        {5, 0, {0}, {0}, 8, -ERANGE, 0, 0},                      /* it ends behind the memory */
        {0, 0, {0}, {0}, 3, -ERANGE, 0, 0},                      /* the memory is too small */
        {0, 2, {3, 5}, {20, 4}, 60, 0, 0, 60},                   /* in order */
        {0, 2, {3, 5}, {20, 4}, 59, -ERANGE, 0, 0},              /* a byte is missing */
        {0, 2, {5, 3}, {4, 20}, 60, 0, 0, 60},                   /* transposed */
        {8, 2, {2, 2}, {16, 4}, 32, 0, 8, 32},                   /* a part of a matrix */
        {56, 1, {15}, {-4}, 60, 0, 0, 60},                       /* backwards */
        {52, 1, {15}, {-4}, 60, -ERANGE, 0, 0},                  /* in front of the memory */
        {0, 1, {1000000}, {0}, 4, 0, 0, 4},                      /* one number, repeated */
        {16, 2, {0, 7}, {1 << 20, 4}, 16, 0, 16, 16},            /* nothing */
        {17, 2, {0, 7}, {28, 4}, 16, -ERANGE, 0, 0},             /* nothing, beyond the end */
        {0, 1, {UINT64_MAX}, {1}, UINT64_MAX, -EOVERFLOW, 0, 0}, /* more than there can be */
        {0, 1, {3}, {INT64_MAX}, UINT64_MAX, -EOVERFLOW, 0, 0},  /* the product is too large */
        {0, 2, {2, 2}, {INT64_MAX - 8, INT64_MAX - 8}, UINT64_MAX, -EOVERFLOW, 0, 0}, /* the sum is */
        {0, 2, {2, 2}, {INT64_MIN, INT64_MIN}, UINT64_MAX, -EOVERFLOW, 0, 0},
        {1ull << 63, 1, {2}, {INT64_MIN}, UINT64_MAX, -ERANGE, 0, 0},
        {UINT64_MAX, 0, {0}, {0}, UINT64_MAX, -ERANGE, 0, 0},
        {UINT64_MAX - 3, 1, {1}, {4}, 60, -ERANGE, 0, 0},
        {0, 3, {1ull << 40, 1ull << 40, 0}, {INT64_MAX, INT64_MAX, 1}, 0, 0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        struct pst_gpu_tensor tensor =
            tensor_of("float32", cases[i].offset, cases[i].rank, cases[i].shape, cases[i].strides);
        uint64_t first = 77, end = 77;

        assert_int_equal(pst_gpu_tensor_span(&tensor, cases[i].memory, &first, &end), cases[i].result);
        assert_int_equal(first, cases[i].result ? 77 : cases[i].first);
        assert_int_equal(end, cases[i].result ? 77 : cases[i].end);
    }
}

static void dense_strides(void **state)
{
    struct pst_gpu_tensor tensor = tensor_of("int16", 0, 3, (uint64_t[]){2, 3, 4}, (int64_t[]){0, 0, 0});

    (void)state;
    assert_int_equal(pst_gpu_tensor_set_dense(&tensor), 0);
    assert_int_equal(tensor.strides[0], 24);
    assert_int_equal(tensor.strides[1], 8);
    assert_int_equal(tensor.strides[2], 2);
    tensor.shape[0] = tensor.shape[1] = UINT64_MAX / 2;
    assert_int_equal(pst_gpu_tensor_set_dense(&tensor), -EOVERFLOW);
    assert_int_equal(tensor.strides[0], 24);
}

static void handles_come_back(void **state)
{
    struct pst_gpu_handle host = {.kind = PST_GPU_HOST, .memory_bytes = 1ull << 40, .descriptor = 252};
    struct pst_gpu_handle cuda = {.kind = PST_GPU_CUDA, .memory_bytes = 4096}, read;
    struct pst_gpu_tensor tensor = tensor_of("int8", 77, 2, (uint64_t[]){5, 6}, (int64_t[]){-6, 1}),
                          back = {0};
    char text[PST_GPU_HANDLE_TEXT_MAX];

    (void)state;
    pst_gpu_handle_print(&host, &tensor, text);
    assert_string_equal(text, "70737431"
                              "01"
                              "02"
                              "0000"
                              "0000000000010000"
                              "4d00000000000000"
                              "faffffffffffffff"
                              "0100000000000000"
                              "fc000000");
    assert_int_equal(pst_gpu_handle_parse(text, &read, &back), 0);
    assert_memory_equal(&read, &host, sizeof(host));
    assert_int_equal(back.rank, 2);
    assert_int_equal(back.offset_bytes, 77);
    assert_memory_equal(back.strides, tensor.strides, sizeof(back.strides));
    for (size_t i = 0; i < sizeof(cuda.cuda); i++)
        cuda.cuda[i] = (uint8_t)(i * 5);
    tensor.rank = PST_GPU_RANK_MAX;
    pst_gpu_handle_print(&cuda, &tensor, text);
    assert_int_equal(strlen(text), PST_GPU_HANDLE_TEXT_MAX - 1);
    assert_int_equal(pst_gpu_handle_parse(text, &read, &back), 0);
    assert_memory_equal(&read, &cuda, sizeof(cuda));
    assert_int_equal(back.rank, PST_GPU_RANK_MAX);
}

static void no_handles(void **state)
{
    static const struct {
        const char *text;
        int result;
    } cases[] = {
        {"", -EINVAL},
        {"7", -EINVAL},
        {"zz", -EINVAL},
        {"707374", -EINVAL},
        {"70737431010000000000000000000000000000000000000000000000", 0},           /* one number's */
        {"707374310100000000000000000000000000000000000000000000", -EINVAL},       /* a byte less, */
        {"7073743101000000000000000000000000000000000000000000000000", -EINVAL},   /* and more */
        {"70737432010000000000000000000000000000000000000000000000", -EOPNOTSUPP}, /* a later version */
        {"70737431030000000000000000000000000000000000000000000000", -EOPNOTSUPP}, /* another kind */
        {"70737431010001000000000000000000000000000000000000000000", -EOPNOTSUPP},
        {"71737431010000000000000000000000000000000000000000000000", -EINVAL},
        {"70737431012100000000000000000000000000000000000000000000", -EINVAL}, /* 33 dimensions */
        {"70737431010100000000000000000000000000000000000000000000", -EINVAL}, /* no strides */
        {"70737431020000000000000000000000000000000000000000000000", -EINVAL}, /* no bytes of CUDA's */
        {"7073743101000000000000000000000000000000000000000000000A", -EINVAL}, /* not as we write it */
    };
    char text[2 * PST_GPU_HANDLE_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        struct pst_gpu_handle handle = {.kind = 9};
        struct pst_gpu_tensor tensor = {.rank = 9};

        assert_int_equal(pst_gpu_handle_parse(cases[i].text, &handle, &tensor), cases[i].result);
        assert_int_equal(handle.kind, cases[i].result ? 9 : PST_GPU_HOST);
        assert_int_equal(tensor.rank, cases[i].result ? 9 : 0);
    }
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    assert_int_equal(pst_gpu_handle_parse(text, &(struct pst_gpu_handle){0}, &(struct pst_gpu_tensor){0}),
                     -EINVAL);
}

/* Every element of a tensor lies where its strides say, whichever side has which. */
static void copies_whatever_the_strides(void **state)
{
    static const int64_t layouts[][3] = {{24, 8, 2}, {2, 4, 12}, {-24, 8, 2}, {48, 16, 4}, {24, -8, -2}};
    static const uint64_t offsets[] = {0, 0, 24, 6, 22};
    uint64_t shape[] = {2, 3, 4};
    struct pst_gpu_memory *from, *to;
    struct pst_gpu *host;
    char fault[PST_FAULT_BYTES];
    uint16_t numbers[64], got[64];

    (void)state;
    assert_int_equal(pst_gpu_host.open(0, &host, fault), 0);
    assert_int_equal(pst_gpu_host.allocate(host, sizeof(numbers), &from), 0);
    assert_int_equal(pst_gpu_host.allocate(host, sizeof(numbers), &to), 0);
    for (uint16_t i = 0; i < 64; i++)
        numbers[i] = i;
    assert_int_equal(pst_gpu_copy_in(from, 0, numbers, sizeof(numbers)), 0);
    for (size_t one = 0; one < 25; one++) {
        size_t a = one / 5, b = one % 5;
        struct pst_gpu_tensor source = tensor_of("int16", offsets[a], 3, shape, layouts[a]);
        struct pst_gpu_tensor target = tensor_of("int16", offsets[b], 3, shape, layouts[b]);

        memset(got, 0xff, sizeof(got));
        assert_int_equal(pst_gpu_copy_in(to, 0, got, sizeof(got)), 0);
        assert_int_equal(pst_gpu_copy_tensor(to, &target, from, &source), 0);
        assert_int_equal(pst_gpu_settle(host), 0);
        assert_int_equal(pst_gpu_copy_out(to, 0, got, sizeof(got)), 0);
        for (size_t i = 0; i < 24; i++) {
            int64_t x = (int64_t)i / 12, y = (int64_t)i / 4 % 3, z = (int64_t)i % 4;
            int64_t in = (int64_t)offsets[a] + x * layouts[a][0] + y * layouts[a][1] + z * layouts[a][2];
            int64_t out = (int64_t)offsets[b] + x * layouts[b][0] + y * layouts[b][1] + z * layouts[b][2];

            assert_int_equal(got[out / 2], in / 2);
        }
    }
    assert_null(pst_gpu_give(from));
    assert_null(pst_gpu_give(to));
    assert_null(pst_gpu_close(host));
}

static void tensors_that_cannot_be_copied(void **state)
{
    uint64_t shape[] = {1ull << 40, 1ull << 20};
    struct pst_gpu_tensor whole = tensor_of("int8", 0, 1, (uint64_t[]){64}, (int64_t[]){1});
    struct pst_gpu_tensor half = tensor_of("int8", 0, 1, (uint64_t[]){32}, (int64_t[]){1});
    struct pst_gpu_tensor other = tensor_of("uint8", 0, 1, (uint64_t[]){64}, (int64_t[]){1});
    struct pst_gpu_tensor beyond = tensor_of("int8", 1, 1, (uint64_t[]){64}, (int64_t[]){1});
    struct pst_gpu_tensor endless = tensor_of("int8", 0, 2, shape, (int64_t[]){0, 0});
    struct pst_gpu_tensor nothing = tensor_of("int8", 64, 2, (uint64_t[]){UINT64_MAX, 0}, (int64_t[]){1, 1});
    struct pst_gpu_memory *memory;
    struct pst_gpu *host;
    char fault[PST_FAULT_BYTES];

    (void)state;
    assert_int_equal(pst_gpu_host.open(0, &host, fault), 0);
    assert_int_equal(pst_gpu_host.allocate(host, 64, &memory), 0);
    assert_int_equal(pst_gpu_copy_tensor(memory, &whole, memory, &half), -EINVAL);
    assert_int_equal(pst_gpu_copy_tensor(memory, &whole, memory, &other), -EINVAL);
    assert_int_equal(pst_gpu_copy_tensor(memory, &whole, memory, &beyond), -ERANGE);
    assert_int_equal(pst_gpu_copy_tensor(memory, &beyond, memory, &whole), -ERANGE);
    assert_int_equal(pst_gpu_copy_tensor(memory, &endless, memory, &endless), -EINVAL);
    endless.shape[1] = UINT64_MAX;
    assert_int_equal(pst_gpu_copy_tensor(memory, &endless, memory, &endless), -EOVERFLOW);
    assert_int_equal(pst_gpu_copy_tensor(memory, &nothing, memory, &nothing), 0);
    assert_int_equal(pst_gpu_copy_in(memory, 60, "12345", 5), -ERANGE);
    assert_int_equal(pst_gpu_copy_in(memory, UINT64_MAX, "12345", 2), -ERANGE);
    assert_int_equal(pst_gpu_copy(memory, 0, memory, 1, 64), -ERANGE);
    assert_int_equal(pst_gpu_copy(memory, 1, memory, 0, UINT64_MAX), -ERANGE);
    assert_null(pst_gpu_give(memory));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_names),
        cmocka_unit_test(spans),
        cmocka_unit_test(dense_strides),
        cmocka_unit_test(handles_come_back),
        cmocka_unit_test(no_handles),
        cmocka_unit_test(copies_whatever_the_strides),
        cmocka_unit_test(tensors_that_cannot_be_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
