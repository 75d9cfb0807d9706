#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char text[512];

int pst_fail(int result, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return result;
}

const char *pst_error_text(void)
{
    return text;
}
