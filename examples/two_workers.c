/* The C ABI in one page: two workers hand in gradients of one parameter and read the mean over all their samples.
 *   gradshmd --name two --expect 2 &
 *   two_workers two
 * prints from both processes: worker 0 sees the mean over 2 workers and 4 samples: 1 2 3 */
#define _POSIX_C_SOURCE 200809L
#include <gradshm/gradshm.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS(n) ((int64_t)(n)*1000000000)

static void check(int code, const char* call) {
  if (code == GRADSHM_OK) return;
  const char* sentence = gradshm_last_error();
  fprintf(stderr, "two_workers: %s: %s\n", call, *sentence ? sentence : gradshm_strerror(code));
  exit(1);
}

static gradshm_handle_t* attach(const char* instance, int rank) {
  const int64_t shape[] = {3};
  const gradshm_attach_options_t options = {.size = sizeof options, .rank = rank, .timeout_ns = SECONDS(10)};
  gradshm_layout_t* layout = NULL;
  gradshm_handle_t* handle = NULL;
  check(gradshm_layout_create(&layout), "gradshm_layout_create");
  check(gradshm_layout_add(layout, "weight", GRADSHM_F32, shape, 1), "gradshm_layout_add");
  check(gradshm_attach(instance, layout, &options, &handle), "gradshm_attach"); /* waits for both workers: --expect 2 */
  gradshm_layout_destroy(layout);
  return handle;
}

/* Worker 0 has 1 sample, worker 1 has 3; each hands in the sum over its samples, and its weight says how many they were. */
static void run_worker(const char* instance, int rank) {
  const double samples = rank == 0 ? 1 : 3;
  const gradshm_commit_options_t options = {.size = sizeof options, .weight = samples};
  gradshm_result_info_t info = {.size = sizeof info};
  gradshm_handle_t* handle = attach(instance, rank);
  uint64_t round = 0;
  size_t weight = 0;
  void* slot = NULL;
  const void* result = NULL;
  check(gradshm_find(handle, "weight", &weight), "gradshm_find");
  check(gradshm_slot(handle, weight, &slot), "gradshm_slot");
  check(gradshm_result(handle, weight, &result), "gradshm_result");

  for (int i = 0; i < 3; ++i) ((float*)slot)[i] = (float)((i + 1) * samples); /* the backward pass, in place */
  check(gradshm_commit(handle, GRADSHM_ALL, 0, &options, &round), "gradshm_commit");
  check(gradshm_wait(handle, round, SECONDS(10)), "gradshm_wait");

  check(gradshm_result_info(handle, weight, &info), "gradshm_result_info");
  const float* mean = (const float*)result; /* read where it lies */
  printf("worker %d sees the mean over %u workers and %.0f samples: %g %g %g\n", rank, (unsigned)info.count, info.weight_sum,
         (double)mean[0], (double)mean[1], (double)mean[2]);
  gradshm_detach(handle);
}

int main(int argc, char** argv) {
  const char* instance = argc > 1 ? argv[1] : NULL; /* NULL: $GRADSHM_INSTANCE, else "default" */
  const pid_t child = fork();                       /* before attaching: a handle does not survive a fork */
  if (child < 0) return perror("two_workers: fork"), 1;
  run_worker(instance, child == 0 ? 1 : 0);
  if (child == 0) return 0;
  int status = 0;
  if (waitpid(child, &status, 0) < 0) return perror("two_workers: waitpid"), 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
