/* A shared library that misbehaves while it is loaded; one of the names below is defined before this file is included. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void misbehave(void) {
#if defined HANGS
    for (;;) sleep(60);
#elif defined SEGFAULTS
    raise(SIGSEGV);
#elif defined ABORTS
    abort();
#elif defined EXITS
    _exit(0);
#elif defined FLOODS
    char block[65536];
    memset(block, 'x', sizeof block);
    for (int n = 0; n < 1024; ++n)
        if (write(1, block, sizeof block) < 0 || write(2, block, sizeof block) < 0) break;
#elif defined PRINTS
    static const char text[] = "{\"event\": \"init\", \"code\": 0}\n\xff\xfe\n{\"load_error\": 7}\n";
    if (write(1, text, sizeof text - 1) < 0) return;
#elif defined FORKS
    if (fork() == 0)
        for (;;) sleep(60);
#endif
}

#ifdef LIMITS_TASKS
/* Preloaded: every process of the tree may make HOSTILE_TASKS threads and processes, then EAGAIN, as under a pids.max. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

static int left = -1;

static int may_not(void) {
    if (left < 0) left = atoi(getenv("HOSTILE_TASKS") ? getenv("HOSTILE_TASKS") : "1000");
    return left == 0 || (__sync_sub_and_fetch(&left, 1) < 0 && (left = 0, 1));
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    return may_not() ? EAGAIN : real(thread, attributes, start, argument);
}

pid_t fork(void) {
    pid_t (*real)(void) = dlsym(RTLD_NEXT, "fork");
    if (may_not()) {
        errno = EAGAIN;
        return -1;
    }
    return real();
}

pid_t vfork(void) {
    return fork();
}
#endif
