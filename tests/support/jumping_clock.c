/* LD_PRELOAD: every look at the wall clock is an hour early or an hour late, in turn. CLOCK_MONOTONIC is left alone. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t jump(void) {
  static atomic_uint looks;
  /* order: relaxed, only to alternate */
  return atomic_fetch_add_explicit(&looks, 1, memory_order_relaxed) % 2 == 0 ? 3600 : -3600;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
  return result;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  struct timespec real;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &real) != 0) return -1;
  now->tv_sec = real.tv_sec, now->tv_usec = real.tv_nsec / 1000;
  return 0;
}

__attribute__((visibility("default"))) time_t time(time_t* ret_now) {
  struct timespec real;
  clock_gettime(CLOCK_REALTIME, &real);
  if (ret_now != NULL) *ret_now = real.tv_sec;
  return real.tv_sec;
}
