/* Preloaded: /dev/nvidia* are the files below FAKE_ROOT; with REFUSED_NODES opening them fails with that number (1, EPERM), as
 * under a device control group. The super-user of the tests would be let through otherwise. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*Open)(const char *, int, ...);

static int open_node(const char *name, const char *path, int flags, int mode) {
    const char *root = getenv("FAKE_ROOT"), *refused = getenv("REFUSED_NODES");
    char below[4096];
    if (root && !strncmp(path, "/dev/nvidia", 11)) {
        if (refused) {
            errno = atoi(refused);
            return -1;
        }
        snprintf(below, sizeof below, "%s%s", root, path);
        path = below;
    }
    return ((Open)dlsym(RTLD_NEXT, name))(path, flags, mode);
}

#define REPLACE(name)                                                \
    int name(const char *path, int flags, ...) {                     \
        va_list rest;                                                \
        va_start(rest, flags);                                       \
        int mode = flags & O_CREAT ? va_arg(rest, int) : 0;          \
        va_end(rest);                                                \
        return open_node(#name, path, flags, mode);        \
    }

REPLACE(open)
REPLACE(open64)
