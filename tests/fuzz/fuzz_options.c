/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_options.c: a configuration file and the settings in a URL. What was read is written as a file that
 * reads the same. */
#include "fuzz.h"

#include "node/node.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

static int read_file(const char *text, struct pst_node_settings *settings)
{
    char path[64], fault[PST_FAULT_BYTES] = "";
    size_t bytes = strlen(text);
    int fd = memfd_create("config", MFD_CLOEXEC), r;

    pst_assert(fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    r = pst_options_file(&pst_node_options, settings, path, fault);
    pst_assert((r < 0) == (fault[0] != '\0'));
    close(fd);
    return r;
}

/* Lines "name = value" of all that is set. */
static char *print_file(const struct pst_node_settings *settings)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    pst_assert(out);
    for (size_t i = 0; i < pst_node_options.count; i++) {
        const struct pst_option *row = &pst_node_options.rows[i];
        const void *from = (const char *)settings + row->offset;
        const struct pst_strings *list = from;

        if (row->type == PST_OPTION_STRING && *(char *const *)from)
            fprintf(out, "%s = %s\n", row->name, *(char *const *)from);
        if (row->type == PST_OPTION_SIZE || row->type == PST_OPTION_NUMBER)
            fprintf(out, "%s=%llu\n", row->name, *(const unsigned long long *)from);
        for (uint32_t k = 0; row->type == PST_OPTION_LIST && k < list->count; k++)
            fprintf(out, " %s = %s # again\n", row->name, list->items[k]);
    }
    fclose(out);
    return text;
}

static void preset(struct pst_node_settings *settings)
{
    char fault[PST_FAULT_BYTES];
    int r = pst_options_preset(&pst_node_options, settings, fault);

    pst_assert(r == 0);
}

static void bounds_hold(const struct pst_node_settings *settings)
{
    for (size_t i = 0; i < pst_node_options.count; i++) {
        const struct pst_option *row = &pst_node_options.rows[i];
        const void *from = (const char *)settings + row->offset;

        if (row->type == PST_OPTION_SIZE || row->type == PST_OPTION_NUMBER)
            pst_assert(*(const uint64_t *)from >= row->min && *(const uint64_t *)from <= row->max);
    }
}

static void file(const char *text)
{
    struct pst_node_settings settings = {0}, again = {0};
    char *printed, *printed_again;

    preset(&settings);
    if (read_file(text, &settings) == 0) {
        bounds_hold(&settings);
        printed = print_file(&settings);
        pst_assert(read_file(printed, &again) == 0);
        printed_again = print_file(&again);
        pst_assert(strcmp(printed, printed_again) == 0);
        free(printed);
        free(printed_again);
    }
    pst_options_free(&pst_node_options, &settings);
    pst_options_free(&pst_node_options, &again);
}

static void pairs(const char *text)
{
    struct pst_node_settings settings = {0};
    char fault[PST_FAULT_BYTES] = "", line[256], *prefixes[PST_STRINGS_MAX];
    uint32_t count;

    preset(&settings);
    if (pst_options_set_pair(&pst_node_options, &settings, text, fault) == 0) {
        bounds_hold(&settings);
        pst_options_print(&pst_node_options, &settings, line, sizeof(line));
        pst_assert(memchr(line, 0, sizeof(line)));
        if (pst_classes_parse(&settings.class, prefixes, &count, fault) == 0)
            pst_classes_free(prefixes, count);
    } else {
        pst_assert(fault[0]);
    }
    pst_options_free(&pst_node_options, &settings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    bool whole_file = fuzz_number(&in, 1) & 1;
    char *text = fuzz_text(&in, in.left);

    if (whole_file)
        file(text);
    else
        pairs(text);
    free(text);
    return 0;
}
