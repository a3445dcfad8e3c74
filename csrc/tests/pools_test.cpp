// The thread pool and the buffer pool, alone and across forks.
#include "tests/check.h"

void thread_pool_tests();
void buffer_pool_tests();

int main() {
  thread_pool_tests();
  buffer_pool_tests();
  return pinfeed::tests::summary();
}
