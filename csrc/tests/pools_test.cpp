// The thread pool and the buffer pool, alone, across forks, and with kernels.
#include "tests/check.h"

void thread_pool_tests();
void buffer_pool_tests();
void batches_tests();

int main() {
  thread_pool_tests();
  buffer_pool_tests();
  batches_tests();
  return pinfeed::tests::summary();
}
