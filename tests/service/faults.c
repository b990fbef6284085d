/* Let one call fail, or the process die at it: the n-th of its kind on a file below a folder.
 *
 * Preloaded; it does nothing until `arm` is called. When the call comes, the file `mark` is made.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static char kind[32], folder[512], mark[512];
static int error; /* 0: die */
static atomic_long left;

void arm(const char *call, long n, int number, const char *below, const char *file) {
    snprintf(folder, sizeof folder, "%s", below);
    snprintf(mark, sizeof mark, "%s", file);
    error = number;
    left = n;
    snprintf(kind, sizeof kind, "%s", call);
}

static int is_below(const char *path) { return !strncmp(path, folder, strlen(folder)); }

static int holds(int fd) {
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return is_below(path);
}

static int falls_due(void) {
    if (atomic_fetch_sub(&left, 1) != 1) return 0;
    int file = syscall(SYS_openat, AT_FDCWD, mark, O_CREAT | O_WRONLY, 0600);
    syscall(SYS_close, file);
    if (!error) kill(getpid(), SIGKILL);
    errno = error;
    return 1;
}

static int is_kind(const char *call) {
    return kind[0] && (!strcmp(kind, call) || !strcmp(kind, "any"));
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAILS(call, is_ours) (is_kind(call) && (is_ours) && falls_due())

ssize_t write(int fd, const void *b, size_t n) {
    return FAILS("write", holds(fd)) ? -1 : NEXT(write)(fd, b, n);
}
ssize_t pwrite(int fd, const void *b, size_t n, off_t at) {
    return FAILS("pwrite", holds(fd)) ? -1 : NEXT(pwrite)(fd, b, n, at);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t at) {
    return FAILS("pwrite", holds(fd)) ? -1 : NEXT(pwrite64)(fd, b, n, at);
}
int fsync(int fd) { return FAILS("fsync", holds(fd)) ? -1 : NEXT(fsync)(fd); }
int fdatasync(int fd) { return FAILS("fdatasync", holds(fd)) ? -1 : NEXT(fdatasync)(fd); }
int ftruncate(int fd, off_t n) { return FAILS("ftruncate", holds(fd)) ? -1 : NEXT(ftruncate)(fd, n); }
int ftruncate64(int fd, off64_t n) {
    return FAILS("ftruncate", holds(fd)) ? -1 : NEXT(ftruncate64)(fd, n);
}
int rename(const char *a, const char *b) {
    return FAILS("rename", is_below(a)) ? -1 : NEXT(rename)(a, b);
}
int renameat(int da, const char *a, int db, const char *b) {
    return FAILS("rename", is_below(a)) ? -1 : NEXT(renameat)(da, a, db, b);
}
