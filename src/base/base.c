#include "base/base.h"

#include <stdio.h>

_Noreturn void pst_assert_failed(const char *text, const char *file, int line)
{
    fprintf(stderr, "penstock: assertion failed: %s (%s:%d)\n", text, file, line);
    abort();
}
