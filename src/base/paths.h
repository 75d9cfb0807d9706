/* paths.h: where things lie when nobody says. */
#ifndef PST_PATHS_H
#define PST_PATHS_H

#include <stddef.h>

/* The unix socket that a node serves on and a client tries by default: in XDG_RUNTIME_DIR, for root in /run.
 */
void pst_default_socket(char *buf, size_t cap);

#endif
