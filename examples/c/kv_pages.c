/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_pages.c: what an inference server does with a prompt's KV-cache pages, in batches: look up how many
 * leading pages the store has, get these, compute the rest, put them. Two prompts that begin alike share
 * pages by their keys. Argument: a store's URL, such as mem:?cache=kv/ or node+unix:///run/penstock.sock
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <penstock/penstock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGES = 8, PAGE_BYTES = 64 << 10, KEY_BYTES = 32 };

struct prompt {
    char keys[PAGES][KEY_BYTES];
    unsigned char *pages; /* PAGES of PAGE_BYTES */
};

/* A page's key names all tokens up to its end; here one number a page stands for them. */
static void name_pages(struct prompt *prompt, const unsigned *tokens)
{
    unsigned chain = 0;

    for (unsigned i = 0; i < PAGES; i++) {
        chain = chain * 31 + tokens[i];
        snprintf(prompt->keys[i], KEY_BYTES, "kv/%08x", chain);
    }
}

static void compute_page(struct prompt *prompt, unsigned i)
{
    memset(prompt->pages + (size_t)i * PAGE_BYTES, prompt->keys[i][10], PAGE_BYTES);
}

/* Return: how many leading pages came from the store, or -1. */
static int load_pages(struct penstock *store, struct prompt *prompt)
{
    struct penstock_op ops[PAGES] = {0};
    int loaded = 0;

    for (unsigned i = 0; i < PAGES; i++)
        penstock_prep_get(&ops[i], prompt->keys[i], strlen(prompt->keys[i]),
                          prompt->pages + (size_t)i * PAGE_BYTES, PAGE_BYTES);
    if (penstock_batch(store, ops, PAGES) < 0)
        return -1;
    while (loaded < PAGES && ops[loaded].result == PENSTOCK_OK)
        loaded++;
    return loaded;
}

/* Pages that another server has put meanwhile are left as they are: the same key is the same page. */
static int save_pages(struct penstock *store, struct prompt *prompt, unsigned from)
{
    struct penstock_op ops[PAGES] = {0};

    for (unsigned i = from; i < PAGES; i++) {
        compute_page(prompt, i);
        penstock_prep_put(&ops[i], prompt->keys[i], strlen(prompt->keys[i]),
                          prompt->pages + (size_t)i * PAGE_BYTES, PAGE_BYTES);
        ops[i].flags = PENSTOCK_IF_ABSENT;
        ops[i].depth = (uint16_t)i; /* if room is short, deep pages leave first */
    }
    if (penstock_batch(store, ops + from, PAGES - from) < 0)
        return -1;
    for (unsigned i = from; i < PAGES; i++) {
        if (ops[i].result != PENSTOCK_OK && ops[i].result != PENSTOCK_EXISTS)
            return fprintf(stderr, "%s: %s\n", prompt->keys[i], penstock_result_text(ops[i].result)), -1;
    }
    return 0;
}

static int serve(struct penstock *store, const char *name, const unsigned *tokens)
{
    struct prompt prompt = {.pages = malloc((size_t)PAGES * PAGE_BYTES)};
    int loaded, r = -1;

    if (!prompt.pages)
        return -1;
    name_pages(&prompt, tokens);
    loaded = load_pages(store, &prompt);
    if (loaded >= 0)
        r = loaded < PAGES ? save_pages(store, &prompt, (unsigned)loaded) : 0;
    printf("%s: %d of %d pages were there\n", name, loaded, PAGES);
    free(prompt.pages);
    return r;
}

int main(int argc, char **argv)
{
    static const unsigned first[PAGES] = {1, 2, 3, 4, 5, 6, 7, 8}, second[PAGES] = {1, 2, 3, 4, 5, 9, 9, 9};
    struct penstock *store;
    int failed;

    if (argc != 2 || penstock_open(argv[1], NULL, &store) < 0)
        return fprintf(stderr, "%s\n", argc == 2 ? penstock_error() : "usage: kv_pages URL"), 1;
    failed = serve(store, "first prompt", first) || serve(store, "second prompt", second) ||
             serve(store, "first again", first);
    penstock_close(store);
    return failed;
}
