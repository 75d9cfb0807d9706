/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c: UCX, loaded when the process first opens a transport (Meson's option ucx=loaded): a store
 * inside the process needs none, and a library for many machines cannot know which of them have it. The
 * functions that the transport calls are defined here, and lead to those of the library once it is there.
 */
#include "net/ucx/ucx_priv.h"

#ifdef PST_UCX_LOADED

#include <dlfcn.h>
#include <pthread.h>
#include <uct/api/uct.h>

/* X(type, name, parameters, arguments) */
#define UCX_CALLS(X)                                                                                         \
    X(void, ucp_am_data_release, (ucp_worker_h worker, void *data), (worker, data))                          \
    X(ucs_status_ptr_t, ucp_am_recv_data_nbx,                                                                \
      (ucp_worker_h worker, void *desc, void *buffer, size_t count, const ucp_request_param_t *param),       \
      (worker, desc, buffer, count, param))                                                                  \
    X(ucs_status_ptr_t, ucp_am_send_nbx,                                                                     \
      (ucp_ep_h ep, unsigned id, const void *header, size_t header_bytes, const void *buffer, size_t count,  \
       const ucp_request_param_t *param),                                                                    \
      (ep, id, header, header_bytes, buffer, count, param))                                                  \
    X(void, ucp_cleanup, (ucp_context_h context), (context))                                                 \
    X(ucs_status_t, ucp_config_modify, (ucp_config_t * config, const char *name, const char *value),         \
      (config, name, value))                                                                                 \
    X(ucs_status_t, ucp_config_read, (const char *prefix, const char *file, ucp_config_t **out),             \
      (prefix, file, out))                                                                                   \
    X(void, ucp_config_print,                                                                                \
      (const ucp_config_t *config, FILE *stream, const char *title, ucs_config_print_flags_t flags),         \
      (config, stream, title, flags))                                                                        \
    X(void, ucp_config_release, (ucp_config_t * config), (config))                                           \
    X(ucs_status_ptr_t, ucp_ep_close_nbx, (ucp_ep_h ep, const ucp_request_param_t *param), (ep, param))      \
    X(ucs_status_t, ucp_ep_create, (ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *out),      \
      (worker, params, out))                                                                                 \
    X(ucs_status_ptr_t, ucp_ep_flush_nbx, (ucp_ep_h ep, const ucp_request_param_t *param), (ep, param))      \
    X(void, ucp_ep_print_info, (ucp_ep_h ep, FILE * stream), (ep, stream))                                   \
    X(void, ucp_get_version, (unsigned *major, unsigned *minor, unsigned *release), (major, minor, release)) \
    X(ucs_status_t, ucp_init_version,                                                                        \
      (unsigned major, unsigned minor, const ucp_params_t *params, const ucp_config_t *config,               \
       ucp_context_h *out),                                                                                  \
      (major, minor, params, config, out))                                                                   \
    X(ucs_status_t, ucp_mem_map,                                                                             \
      (ucp_context_h context, const ucp_mem_map_params_t *params, ucp_mem_h *out), (context, params, out))   \
    X(ucs_status_t, ucp_mem_unmap, (ucp_context_h context, ucp_mem_h memory), (context, memory))             \
    X(void, ucp_request_free, (void *request), (request))                                                    \
    X(ucs_status_t, ucp_worker_arm, (ucp_worker_h worker), (worker))                                         \
    X(ucs_status_t, ucp_worker_create,                                                                       \
      (ucp_context_h context, const ucp_worker_params_t *params, ucp_worker_h *out), (context, params, out)) \
    X(void, ucp_worker_destroy, (ucp_worker_h worker), (worker))                                             \
    X(ucs_status_t, ucp_worker_get_efd, (ucp_worker_h worker, int *fd), (worker, fd))                        \
    X(unsigned, ucp_worker_progress, (ucp_worker_h worker), (worker))                                        \
    X(ucs_status_t, ucp_worker_query, (ucp_worker_h worker, ucp_worker_attr_t * attr), (worker, attr))       \
    X(void, ucp_worker_release_address, (ucp_worker_h worker, ucp_address_t * address), (worker, address))   \
    X(ucs_status_t, ucp_worker_set_am_recv_handler,                                                          \
      (ucp_worker_h worker, const ucp_am_handler_param_t *param), (worker, param))                           \
    X(ucs_status_t, uct_component_query, (uct_component_h component, uct_component_attr_t * attr),           \
      (component, attr))                                                                                     \
    X(ucs_status_t, uct_config_get, (void *config, const char *name, char *value, size_t room),              \
      (config, name, value, room))                                                                           \
    X(ucs_status_t, uct_config_modify, (void *config, const char *name, const char *value),                  \
      (config, name, value))                                                                                 \
    X(void, uct_config_release, (void *config), (config))                                                    \
    X(void, uct_md_close, (uct_md_h domain), (domain))                                                       \
    X(ucs_status_t, uct_md_config_read,                                                                      \
      (uct_component_h component, const char *prefix, const char *file, uct_md_config_t **out),              \
      (component, prefix, file, out))                                                                        \
    X(ucs_status_t, uct_md_iface_config_read,                                                                \
      (uct_md_h domain, const char *transport, const char *prefix, const char *file,                         \
       uct_iface_config_t **out),                                                                            \
      (domain, transport, prefix, file, out))                                                                \
    X(ucs_status_t, uct_md_open,                                                                             \
      (uct_component_h component, const char *name, const uct_md_config_t *config, uct_md_h *out),           \
      (component, name, config, out))                                                                        \
    X(ucs_status_t, uct_query_components, (uct_component_h * *components, unsigned *count),                  \
      (components, count))                                                                                   \
    X(void, uct_release_component_list, (uct_component_h * components), (components))

static struct {
#define X(type, name, parameters, arguments) type(*name) parameters;
    UCX_CALLS(X)
#undef X
} real;

#define X(type, name, parameters, arguments)                                                                 \
    type name parameters                                                                                     \
    {                                                                                                        \
        return real.name arguments;                                                                          \
    }
UCX_CALLS(X)
#undef X

static int loaded; /* 0 or -ELIBACC */

static void ucx_load_now(void)
{
    Dl_info self;
    void *library;

    /* UCX is to find what sockets.c has for it, also where this library itself was opened by name. */
    if (dladdr(&loaded, &self))
        (void)dlopen(self.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    /* It has threads and hooks of its own, and stays. */
    library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    loaded = library ? 0 : -ELIBACC;
#define X(type, name, parameters, arguments)                                                                 \
    if (loaded == 0) {                                                                                       \
        *(void **)(void *)&real.name = dlsym(library, #name);                                                \
        loaded = real.name ? 0 : -ELIBACC;                                                                   \
    }
    UCX_CALLS(X)
#undef X
}

int pst_ucx_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, ucx_load_now);
    pst_assert(loaded <= 0);
    return loaded;
}

#else

int pst_ucx_load(void)
{
    return 0; /* the linker has seen to it */
}

#endif

const char *pst_ucx_load_fault(void)
{
    return "UCX (libucp.so.0) is not installed";
}

static uint32_t version_byte(unsigned number)
{
    return number > UINT8_MAX ? UINT8_MAX : number;
}

uint32_t pst_ucx_version(void)
{
    unsigned major, minor, release;

    if (pst_ucx_load() < 0)
        return 0;
    ucp_get_version(&major, &minor, &release);
    return PST_UCX_VERSION(version_byte(major), version_byte(minor), version_byte(release));
}
